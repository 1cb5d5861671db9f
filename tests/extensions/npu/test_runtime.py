"""Loading torch_npu and triton-ascend: every way in which that fails, by modules put in their place."""

import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

import torch

from perfci import device
from perfci.core.errors import DeviceError
from perfci.extensions.npu import runtime
from perfci.extensions.npu.runtime import AUTOLOAD, check_triton, load

pytestmark = pytest.mark.torch


class Npu(SimpleNamespace):
    """torch.npu."""

    def __init__(self, count=1, **changes):
        used = []
        counters = {
            "is_available": lambda: count > 0,
            "device_count": lambda: count,
            "set_device": used.append,
            "synchronize": lambda: None,
        }
        super().__init__(used=used, **(counters | changes))


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Installs a torch_npu, or an error at its import, and the device files of a machine."""
    monkeypatch.setenv(AUTOLOAD, "1")  # so that the code's setting is undone, even if the name was not set before
    monkeypatch.delenv(AUTOLOAD)
    monkeypatch.setattr(runtime, "installed_versions", lambda names: {})

    def make(npu=None, error=None, versions=None, nodes=(), is_installed=True):
        folder = tmp_path / "dev"
        folder.mkdir(exist_ok=True)
        for node in nodes:
            (folder / node).touch()
        monkeypatch.setattr(runtime, "nodes", lambda: sorted(folder.glob("davinci[0-9]*")))
        monkeypatch.setattr(runtime, "npu_installed", lambda: is_installed)
        monkeypatch.setattr(runtime, "installed_versions", lambda names: versions or {})

        def imported(name):
            assert name == "torch_npu"
            if error is not None:
                raise error
            module = ModuleType("torch_npu")
            monkeypatch.setitem(sys.modules, "torch_npu", module)
            monkeypatch.setattr(torch, "npu", npu or Npu(), raising=False)
            return module

        monkeypatch.setattr(runtime, "import_module", imported)
        return folder

    return make


def kind_of(call, *arguments):
    with pytest.raises(DeviceError) as caught:
        call(*arguments)
    assert str(caught.value).endswith(".")
    return caught.value.reason.kind


# --- torch_npu --------------------------------------------------------------------------------------------------------


def test_the_first_device_is_opened_and_torch_is_told_to_load_no_plugin_by_itself(machine):
    npu = Npu(count=2)
    machine(npu)

    assert load() is npu
    assert npu.used == [0]
    assert os.environ[AUTOLOAD] == "0"


def test_without_the_package_it_says_which_release_belongs_to_this_torch(machine):
    machine(is_installed=False)

    assert kind_of(load) == "npu_no_torch_npu"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ImportError("libhccl.so: cannot open shared object file: No such file or directory"), "npu_no_cann"),
        (ImportError("libascendcl.so: cannot open shared object file. Please run 'source set_env.sh'"), "npu_no_cann"),
        (RuntimeError("Two accelerators cannot be used at the same time in PyTorch: npu and cuda."), "npu_beside_cuda"),
        (ImportError("/x/libtorch_npu.so: undefined symbol: _ZN3c10"), "npu_wrong_wheel"),
        (ImportError("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.1"), "npu_numpy_too_new"),
        (AttributeError("_ARRAY_API not found"), "npu_numpy_too_new"),
        (ModuleNotFoundError("No module named 'yaml'"), "npu_import_failed"),
        (SystemError(), "npu_import_failed"),
    ],
)
def test_each_failure_of_its_import_has_a_sentence_of_its_own(machine, error, kind):
    machine(error=error)

    assert kind_of(load) == kind


def test_a_wheel_for_another_torch_is_not_even_imported(machine):
    machine(error=AssertionError("imported"), versions={"torch-npu": "2.1.0.post17"})

    assert kind_of(load) == "npu_wrong_wheel"


def test_device_files_of_others_are_a_matter_of_rights(machine, monkeypatch):
    folder = machine(Npu(count=0), nodes=["davinci0", "davinci3", "davinci_manager"])
    monkeypatch.setattr(os, "access", lambda node, _: Path(node).name != "davinci_manager")

    with pytest.raises(DeviceError, match="davinci_manager") as caught:
        load()
    assert caught.value.reason.kind == "npu_no_permission"
    assert str(folder / "davinci0") not in str(caught.value)


def test_devices_that_are_there_and_not_seen_are_hidden_by_the_variable(machine, monkeypatch):
    machine(Npu(count=0), nodes=["davinci0", "davinci_manager"])
    monkeypatch.setenv("ASCEND_RT_VISIBLE_DEVICES", "7")

    with pytest.raises(DeviceError, match="ASCEND_RT_VISIBLE_DEVICES: 7"):
        load()


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ("[ERROR] EL0005: The resources are busy. Possible cause: Resource_Busy", "npu_busy"),
        ("open device failed, drvRet=87", "npu_busy"),
        ("The driver version 23.0.3 is not compatible with CANN 8.5.0", "npu_driver_mismatch"),
        ("drvDevOpen: Permission denied", "npu_no_permission"),
        ("error code is 507899", "npu_open_failed"),
    ],
)
def test_each_failure_of_opening_the_device_has_a_sentence_of_its_own(machine, message, kind):
    def refuse(index):
        raise RuntimeError(f"{message}\n  and then a long trace")

    machine(Npu(set_device=refuse))

    assert kind_of(load) == kind


# --- Triton -----------------------------------------------------------------------------------------------------------


def triton_of(monkeypatch, *, target=None, error=None, names=("ascend",), version="3.2.0"):
    def current():
        if error is not None:
            raise error
        return SimpleNamespace(backend=target)

    active = SimpleNamespace(get_current_target=current)
    module = ModuleType("triton")
    module.__version__, module.runtime = version, SimpleNamespace(driver=SimpleNamespace(active=active))
    backends = ModuleType("triton.backends")
    backends.backends = dict.fromkeys(names)
    monkeypatch.setitem(sys.modules, "triton", module)
    monkeypatch.setitem(sys.modules, "triton.backends", backends)


def test_a_triton_that_compiles_for_npus_is_fine(monkeypatch):
    triton_of(monkeypatch, target="npu")

    check_triton()


# --- which device -----------------------------------------------------------------------------------------------------


@pytest.fixture
def without_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def test_auto_takes_the_npu_where_torch_npu_has_one(machine, without_gpu):
    machine(Npu(), nodes=["davinci0"])

    assert device.detect() == "npu"


def test_auto_takes_the_gpu_that_torch_sees_before_any_npu(machine, monkeypatch):
    machine(error=AssertionError("imported"), nodes=["davinci0"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    assert device.detect() == "cuda"
    assert os.environ[AUTOLOAD] == "0"


def test_an_npu_that_is_there_and_cannot_be_opened_is_no_cpu(machine, without_gpu):
    machine(error=ImportError("libhccl.so: cannot open shared object file"), nodes=["davinci0"])

    assert kind_of(device.detect) == "npu_no_cann"
