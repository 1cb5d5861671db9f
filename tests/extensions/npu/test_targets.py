"""TTIR for NPUs without CANN: the usable part of triton-ascend's compiler, and the message if there is none."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")
    pytest.importorskip("triton")

from triton.backends import backends

from perfci.core.wording import sentence
from perfci.extensions.common import binaries
from perfci.extensions.common.targets import TARGETS, target_named
from perfci.extensions.npu import targets
from perfci.extensions.offline.pretender import make_driver

pytestmark = pytest.mark.torch

B2 = target_named("ascend910b2")


def test_an_npu_has_vector_cores_and_no_registers():
    assert (B2.backend, B2.arch, B2.processors, B2.registers, B2.warp_size) == ("npu", "Ascend910B2", 48, 0, 0)
    assert B2.shared_block == 192 << 10
    assert {target.name for target in targets.TARGETS}.isdisjoint(TARGETS)


def test_its_driver_tells_what_triton_ascends_own_does():
    driver = make_driver(B2)
    target = driver.get_current_target()

    assert (target.backend, target.arch, target.warp_size) == ("npu", "Ascend910B2", 0)
    assert driver.utils.get_device_properties(0) == {"max_shared_mem": 1, "num_aicore": 24, "num_vectorcore": 48}


LACKING = """
from perfci.extensions.offline import compiling as offline
from perfci.extensions.common.targets import target_named
from perfci.core.wording import sentence
offline.install(target_named("ascend910b2"))
print(sentence(offline.compile_call(lambda: 1).capture.blind))
"""


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.skipif("ascend" in backends, reason="this Triton is triton-ascend")
def test_without_triton_ascend_it_says_what_is_missing_and_how_to_get_it():
    variables = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", LACKING], env=variables, capture_output=True, text=True, check=False)

    assert "has no compiler for ascend910b2" in done.stdout, done.stderr
    assert "pip install triton-ascend" in done.stdout


class Compiler:
    """triton-ascend's, whose last stages need CANN."""

    def add_stages(self, stages, options):
        stages["ttir"] = lambda module, metadata: f"{module} as ttir"
        for name in ("ttadapter", "npubin"):
            stages[name] = self.refuse

    def refuse(self, module, metadata):
        raise OSError("ASCEND_HOME_PATH is not set")


@pytest.fixture
def stages(monkeypatch):
    """The stages that are left, as a function of the options."""
    compiler = type("Compiler", (Compiler,), {})
    monkeypatch.setitem(backends, "ascend", SimpleNamespace(compiler=compiler))
    targets.stop_at_ttir()

    def of(**options):
        left = {}
        compiler().add_stages(left, SimpleNamespace(**options))
        return left

    return of


def compiled(stages, module, **options):
    metadata, value = {}, module
    for stage in stages(**options).values():
        value = stage(value, metadata)
    return value, metadata


def test_what_needs_cann_is_left_out(stages):
    assert list(stages()) == ["ttir", "npubin"]


def test_the_compilers_options_are_part_of_what_is_compared(stages):
    one, _ = compiled(stages, "tt.func public @k(", multibuffer=True)
    other, _ = compiled(stages, "tt.func public @k(", multibuffer=False)
    again, _ = compiled(stages, "tt.func public @k(", multibuffer=True, debug=True)

    assert one.startswith(b"tt.func public @k( as ttir\n")
    assert one != other
    assert one == again  # to debug changes nothing of the code


def test_the_metadata_has_what_the_stages_left_out_would_have_noted(stages):
    _, metadata = compiled(stages, "module { tt.func public @scale_rows(%arg0")

    assert metadata == {"name": "scale_rows aiv", "shared": 0, "mix_mode": "aiv", "tensor_kinds": []}


def test_figures_that_no_tool_gives_are_not_told(monkeypatch):
    metadata = SimpleNamespace(shared=0, num_warps=4, name="k aiv")
    kernel = SimpleNamespace(asm={"ttir": "x", "npubin": b"x"}, metadata=metadata, hash="h", name="k")
    launch = SimpleNamespace(kernel=kernel, name="k")

    (binary,) = binaries.binaries([launch], B2)
    assert (binary.registers, binary.shared_bytes, binary.warps, binary.instructions) == (None,) * 4
    assert binary.occupancy is None


@pytest.mark.parametrize(("folder", "kind"), [(None, "npu_to_ttir"), (Path("/programs"), "npu_to_hivm")])
def test_how_far_it_was_compiled_is_said_in_either_case(monkeypatch, folder, kind):
    monkeypatch.setattr(targets.hivm, "find_folder", lambda: folder)

    assert binaries.unavailable(B2).kind == kind
    assert ("to TTIR only" in sentence(binaries.unavailable(B2))) == (folder is None)
