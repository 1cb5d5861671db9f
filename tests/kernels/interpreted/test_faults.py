"""Faults planted in kernels, each found by its op's accuracy suite; benchmarks/mutations.py runs the suites whole."""

import importlib.util
import shutil
import sys
from pathlib import Path

import pytest

from perfci.device import open_device
from perfci.spec import matches
from perfci.verify import checks, verify
from perfci.worker.load import describe_exception, load_op

ROOT = Path(__file__).resolve().parents[3]


def _planted():
    spec = importlib.util.spec_from_file_location("planted", ROOT / "benchmarks" / "planted.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["planted"] = module  # where its dataclass looks its own types up
    spec.loader.exec_module(module)
    return module


FAULTS = _planted().FAULTS


@pytest.fixture(scope="module")
def device():
    return open_device("cpu", seed=1)


@pytest.fixture
def kernels(tmp_path):
    """A copy of all kernels, whose modules are forgotten afterwards."""
    folder = tmp_path / "kernels"
    shutil.copytree(ROOT / "kernels", folder, ignore=shutil.ignore_patterns("__pycache__", ".ruff_cache", "*.md"))
    names = {path.stem for path in folder.rglob("*.py")} | {path.name for path in folder.iterdir() if path.is_dir()}
    _forget(names)
    yield folder
    _forget(names)


def _forget(names):
    for module in [each for each in sys.modules if each.split(".")[0] in names]:
        del sys.modules[module]


def _shows(fault, check):
    """Whether the fault is expected to show in this check; all are tried, these first."""
    return (fault.case or fault.values) and matches(check.case, fault.case) and fault.values in {None, check.values}


def test_every_op_has_faults_of_its_own_and_there_are_many():
    ops = {path.parent.name for path in (ROOT / "kernels").glob("*/*_triton.py")}

    assert {fault.op for fault in FAULTS} == ops
    assert len(FAULTS) >= 30
    assert len({(fault.op, fault.name) for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.op}: {fault.name}")
def test_a_planted_fault_is_found(fault, kernels, device):
    path = kernels / fault.path
    path.write_text(fault.planted(path.read_text()))
    folder = kernels / fault.op
    suite = load_op(fault.op, folder, kernels).accuracy

    planned = sorted(checks(suite, 1, None), key=lambda check: not _shows(fault, check))
    found = (verify(suite, device, check, lambda error: describe_exception(error, folder)) for check in planned)

    assert any(each.failure is not None for each in found)
