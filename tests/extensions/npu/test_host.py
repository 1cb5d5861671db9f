"""Traps on a machine with Ascend devices, laid out below a folder or planted as facts."""

import dataclasses
import sys
from pathlib import Path

import pytest

from perfci.core.wording import sentence
from perfci.extensions.npu import host as looking
from perfci.extensions.npu.host import NpuHost, find_triton_backends, look, traps
from perfci.extensions.npu.smi import NpuChip, NpuPlace, NpuProcess, NpuTable

GOOD = NpuHost(
    packages={
        "torch": "2.6.0+cpu", "torch-npu": "2.6.0.post5", "triton-ascend": "3.2.0", "numpy": "1.26.4", "pybind11": "3",
    },
    variables={},
    nodes=("/dev/davinci0", "/dev/davinci1"),
    home=str(Path(__file__).parent),
    found="/usr/local/Ascend/ascend-toolkit/latest",
    triton_backends=("ascend",),
    table=NpuTable("25.5.1", (NpuChip(NpuPlace(0), "910B2", "OK"), NpuChip(NpuPlace(1), "910B2", "OK")), ()),
    place=NpuPlace(0),
)  # fmt: skip


def found(serious=None, **changes):
    seen = [trap for trap in traps(dataclasses.replace(GOOD, **changes)) if serious in {None, trap.serious}]
    for trap in seen:
        assert sentence(trap.reason)
    return [trap.reason.kind for trap in seen]


def packages(**changes):
    mixed = dict(GOOD.packages) | {name.replace("_", "-"): version for name, version in changes.items()}
    return {name: version for name, version in mixed.items() if version is not None}


def test_a_good_machine_has_nothing_in_the_way_and_one_without_ascend_is_not_looked_at():
    assert found() == []
    assert list(traps(NpuHost(variables={"ASCEND_LAUNCH_BLOCKING": "1"}, packages={"torch": "2.13.0"}))) == []


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"packages": packages(torch_npu=None)}, "npu_no_torch_npu"),
        ({"packages": packages(torch="2.7.1+cpu")}, "npu_wrong_wheel"),
        ({"packages": packages(torch="2.1.0", torch_npu="2.1.0.post17", numpy="2.0.1")}, "npu_numpy_too_new"),
        ({"packages": packages(pybind11=None)}, "npu_no_pybind11"),
        ({"packages": packages(triton_ascend=None)}, "npu_no_triton"),
        ({"triton_backends": ("amd", "nvidia")}, "npu_triton_overwritten"),
        ({"home": "/no/such/folder"}, "doctor_npu_cann_unset"),
        ({"home": None}, "doctor_npu_cann_unset"),
        ({"home": None, "found": None}, "doctor_npu_no_cann"),
        ({"has_library": False}, "doctor_npu_no_library"),
        ({"shut": ("/dev/davinci0",)}, "npu_no_permission"),
        ({"table": NpuTable(None, (NpuChip(NpuPlace(0), "910B2", "Alarm"),), ())}, "npu_unhealthy"),
        ({"table": NpuTable(None, GOOD.table.chips, (NpuProcess(NpuPlace(0), 1),))}, "doctor_npu_taken"),
        ({"variables": {"ASCEND_LAUNCH_BLOCKING": "1"}}, "doctor_launch_blocking"),
    ],
)
def test_each_trap_is_told(changes, kind):
    assert found(serious=True, **changes) == [kind]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"has_gpu": True}, "doctor_npu_and_gpu"),
        ({"nodes": (), "packages": packages(), "home": None, "found": None}, "npu_no_device"),
    ],
)
def test_each_thing_worth_knowing_is_a_note(changes, kind):
    assert found(serious=False, **changes) == [kind]


@pytest.mark.parametrize(
    ("ascend", "cann", "kinds"),
    [("3.2.0", "8.5.0", []), ("3.2.0", "9.0.RC1", ["doctor_npu_cann_other"]), ("3.2.1.post2", "9.0.0", []),
     ("3.2.0rc4", "8.5.0", ["doctor_npu_cann_other"]), ("3.9.0", "8.5.0", []), ("3.2.0", None, [])],
)  # fmt: skip
def test_the_cann_that_belongs_to_triton_ascend_by_its_table_is_named(ascend, cann, kinds):
    assert found(serious=False, packages=packages(triton_ascend=ascend), cann=cann) == kinds


@pytest.mark.parametrize(
    ("file", "text"),
    [("aarch64-linux/ascend_toolkit_install.info", "package_name=Ascend-cann-toolkit\nversion=8.5.0\narch=aarch64\n"),
     ("version.cfg", "# version: 1.0\ntoolkit_running_version=[8.5.0.1.1:8.5.0]\n")],
)  # fmt: skip
def test_canns_version_is_read_from_its_files(tmp_path, file, text):
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(text)

    assert look({"ASCEND_HOME_PATH": str(tmp_path)}, root=tmp_path, asking=lambda *_: None).cann == "8.5.0"


def test_a_compiler_that_triton_finds_by_its_entry_point_overwrites_nothing():
    plugged = {"triton_backends": ("amd", "nvidia"), "triton_plugged": True}

    assert found(packages=packages(triton="3.7.1"), **plugged) == []


def test_a_device_that_was_opened_refutes_what_would_have_kept_it_shut():
    host = dataclasses.replace(
        GOOD, nodes=(), home=None, packages=packages(pybind11=None), variables={"ASCEND_LAUNCH_BLOCKING": "1"}
    )

    assert [trap.reason.kind for trap in traps(host, opened=True)] == ["doctor_launch_blocking"]
    assert {"npu_no_device", "npu_no_pybind11", "doctor_npu_cann_unset"} < {trap.reason.kind for trap in traps(host)}


# --- looking ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(tmp_path):
    """A machine with two chips, a driver and CANN, with an environment that is not sourced."""
    (tmp_path / "dev").mkdir()
    for name in ("davinci0", "davinci1", "davinci_manager"):
        (tmp_path / "dev" / name).touch()
    home = tmp_path / looking.PLACES[0]
    home.mkdir(parents=True)
    return tmp_path


def test_a_machine_is_looked_at_without_anything_of_ascends(machine):
    seen = look({}, root=machine, asking=lambda *_: None)

    assert (len(seen.nodes), seen.shut) == (2, ())
    assert (seen.home, seen.found, seen.has_library) == (None, str(machine / looking.PLACES[0]), False)
    assert (seen.table, seen.place) == (NpuTable(), None)


def test_canns_library_is_looked_for_where_programs_do(machine, tmp_path):
    folder = tmp_path / "lib64"
    folder.mkdir()
    (folder / looking.LIBRARY).touch()
    home = machine / looking.PLACES[0]

    assert look({"LD_LIBRARY_PATH": f"/nowhere:{folder}"}, root=machine, asking=lambda *_: None).has_library
    assert not look({"ASCEND_HOME_PATH": str(home)}, root=machine, asking=lambda *_: None).has_library
    (home / "lib64").mkdir()
    (home / "lib64" / looking.LIBRARY).touch()
    assert look({"ASCEND_HOME_PATH": str(home)}, root=machine, asking=lambda *_: None).has_library


def test_npu_smi_is_asked_of_the_chip_that_a_process_gets(machine):
    samples = Path(__file__).parent / "npu_smi_samples"
    answers = {"info": "info_23.0.7_910b3.txt", "info -t board -i 1": "board_card.txt"}

    def asking(*arguments):
        name = answers.get(" ".join(arguments))
        return (samples / name).read_text() if name else None

    seen = look({"ASCEND_RT_VISIBLE_DEVICES": "1"}, root=machine, asking=asking)

    assert (seen.place, seen.table.driver) == (NpuPlace(1), "23.0.7")
    assert "doctor_npu_taken" in [trap.reason.kind for trap in traps(seen)]


def test_compilers_are_found_in_the_folder_of_triton(tmp_path, monkeypatch):
    for backend in ("ascend", "nvidia"):
        (tmp_path / "triton" / "backends" / backend).mkdir(parents=True)
        (tmp_path / "triton" / "backends" / backend / "compiler.py").touch()
    (tmp_path / "triton" / "__init__.py").touch()
    for name in [name for name in sys.modules if name.split(".")[0] == "triton"]:
        monkeypatch.delitem(sys.modules, name)

    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    assert find_triton_backends() == ("ascend", "nvidia")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "nothing")])
    assert find_triton_backends() == ()
