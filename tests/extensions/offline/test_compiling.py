"""Wrappers as people write them, captured without a device. What cannot be captured is reported, never guessed."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from perfci.core.model import Reason
from perfci.core.wording import sentence
from tests import triton_versions
from tests.static_ops import AUTOTUNED, HEADER, SCALE, compiled, edited, run, write

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

pytestmark = [pytest.mark.torch, pytest.mark.slow]

PERSISTENT = HEADER + TEXTS["persistent"]

# As in Triton's second tutorial: compiled first, then launched as often as its registers allow.
BY_REGISTERS = HEADER + TEXTS["by_registers"]

TMA = HEADER + TEXTS["tma"]

TMA_ON_DEVICE = HEADER + TEXTS["tma_on_device"]

GREEDY = HEADER + TEXTS["greedy"]

DIFFERENTIATED = edited(SCALE, ("def {op}(x):", "def launch(x):\n    assert x.is_cuda")) + TEXTS["differentiated"]

FALLING_BACK = (
    edited(
        SCALE,
        ("def {op}(x):", "@triton.jit\ndef _broken(x_ptr):\n    tl.no_such_thing(x_ptr)\n\n\ndef {op}(x):"),
        ("    n = x.numel()\n", "    n = x.numel()\n    launch(x)\n"),
    )
    + "\n\ndef launch(x):\n    try:\n        _broken[(1,)](x)\n    except Exception:\n        pass\n"
)

REGISTERED_BY_HAND = TEXTS["registered_by_hand"]

IN_TORCH = TEXTS["in_torch"]


def in_wrapper(line, *, before="    return out"):
    return edited(SCALE, (before, f"    {line}\n{before}"))


def only(line):
    return f"import torch\n\n\ndef {{op}}(x):\n    {line}\n"


def beside(name):
    """An op that has imported a compiled module of such a name."""
    return edited(
        SCALE,
        (
            "import torch\n",
            f"import sys\nimport types\nimport torch\n\nmodule = types.ModuleType({name!r})\n"
            'module.__file__ = __file__.replace(".py", ".so")\nsys.modules[module.__name__] = module\n',
        ),
    )


WORKING = {
    "beside_tritons_launcher": beside("__triton_launcher"),
    "persistent": PERSISTENT,
    "by_registers": BY_REGISTERS,
    "tma": TMA,
    "tma_on_device": TMA_ON_DEVICE,
    "differentiated": DIFFERENTIATED,
    "in_torch": IN_TORCH,
    "autotuned": AUTOTUNED,
    "by_default_device": edited(SCALE, ("torch.empty_like(x)", "torch.empty(x.shape, device=torch.device('cuda'))")),
    "values_of_the_host": only("return x * torch.tensor([1.0, 2.0, 4.0]).max().item()"),
    "with_a_descriptor_of_none": edited(SCALE, ("n, BLOCK: tl.constexpr):", "n, BLOCK: tl.constexpr, extra=None):")),
    "falls_back": FALLING_BACK,
    "accelerated": in_wrapper(
        "torch.accelerator.synchronize()\n    assert torch.accelerator.current_accelerator() == torch.device('cuda')"
    ),
    "recorded": in_wrapper("out.record_stream(torch.cuda.current_stream())\n    torch.cuda.nvtx.range_push('a')"),
}
WITHOUT_A_KERNEL = {"in_torch": "launches_nothing", "values_of_the_host": "calls_reference"}
"""Those that launch no kernel of their own, and what is said of them."""
OTHERS = triton_versions.targets("sm_100", "gfx942")
"""Targets that this machine surely has no device of."""
if not triton_versions.DESCRIPTORS:
    del WORKING["tma"], WORKING["tma_on_device"]
UNCAPTURED = {
    "item": (only("return x * x.max().item()"), "captured_offline", "torch.Tensor.item"),
    "swallowed": (
        only("try:\n        n = int(x.max())\n    except Exception:\n        n = 3\n    return x * n"),
        "captured_offline",
        "torch.Tensor.__int__",
    ),
    "shape_of_data": (only("return x[x > 0]"), "captured_offline", "torch.Tensor.__getitem__"),
    "to_the_host": (only("return x.cpu()"), "captured_offline", "torch.Tensor.cpu"),
    "free_memory": (only("return x * torch.cuda.mem_get_info()[0]"), "captured_offline", "torch.cuda.mem_get_info"),
    "place_of_the_board": (
        only("return x * torch.cuda.get_device_properties(0).pci_bus_id"),
        "captured_offline",
        "the property pci_bus_id of the device",
    ),
    "driver": (
        only("import triton\n    return x * triton.runtime.driver.active.utils.no_such_thing()"),
        "captured_offline",
        "Triton's driver.utils.no_such_thing",
    ),
    "timed": (
        edited(SCALE, ("    return out", "    triton.testing.do_bench(lambda: 0)\n    return out")),
        "captured_offline",
        "timing of kernels to choose one (triton.testing.do_bench)",
    ),
    "clocked": (
        only(
            "start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))\n    start.record()\n    y = x + 1\n"
            "    end.record()\n    return y * start.elapsed_time(end)"
        ),
        "captured_offline",
        "torch.cuda.Event.elapsed_time",
    ),
    "registered_by_hand": (REGISTERED_BY_HAND, "captured_opaque", "the operator perfci_by_hand.twice.default"),
    "compiled": (
        "import torch\n\nscale = torch.compile(lambda x: x * 2)\n\n\ndef {op}(x):\n    return scale(x)\n",
        "captured_opaque",
        "torch.compile",
    ),
    "with_its_own_binary": (beside("native"), "captured_package", "native"),
    "with_cupy": (edited(SCALE, ("import torch\n", "import torch\nimport cupy\n")), "captured_package", "cupy"),
    "type_error": (only("raise TypeError('x has to be something else')"), "captured_raised", None),
    "nothing": (only("return x"), "captured_nothing", None),
    "inputs_item": (SCALE, "captured_offline", "torch.Tensor.item"),
}
BASELINES = {
    "inputs_item": "def {op}(x):\n    return x\n\n\ndef make_inputs(n, device, seed):\n    import torch\n    "
    'return {{"x": torch.rand(n, device=device) * torch.rand(2, device=device).max().item()}}\n'
}
UNCOMPILED = {
    "unknown_function": (
        edited(SCALE, ("x * 2.0", "tl.no_such_thing(x)")),
        "no_such_thing",
        10 if triton_versions.ERROR_LINES else 7,
    ),
    "refused": (
        edited(SCALE, ("    x = tl.load", '    tl.static_assert(BLOCK > 512, "BLOCK is too small")\n    x = tl.load')),
        "BLOCK is too small",
        9,
    ),
    "too_much_shared_memory": (GREEDY, "shared memory", None),
    "unassembled": (
        edited(SCALE, ("x * 2.0", 'tl.inline_asm_elementwise("nosuch $0, $1;", "=f,f", [x], tl.float32, True, 1)')),
        "Not a name of any known instruction: 'nosuch'",
        None,
    ),
}


@pytest.fixture(scope="module")
def hopper(tmp_path_factory):
    root = tmp_path_factory.mktemp("ops")
    for op, text in WORKING.items():
        write(root, op, text)
    for op, (text, *_) in {**UNCAPTURED, **UNCOMPILED}.items():
        write(root, op, text, **({"baseline": BASELINES[op]} if op in BASELINES else {}))
    (root / "with_cupy" / "cupy.py").write_text("")
    names = [*WORKING, *UNCAPTURED, *UNCOMPILED]
    return {op: case(static) for op, static in compiled(run(root, names, "sm_90", root / "cache")).items()}


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """The working ones for targets that this machine surely has no device of."""
    root = tmp_path_factory.mktemp("ops")
    for op, text in WORKING.items():
        write(root, op, text)
    return {target: compiled(run(root, list(WORKING), target, root / target)) for target in OTHERS}


def case(static):
    assert static["failure"] is None, static["failure"]
    (only_case,) = static["cases"]
    return only_case


def reason(answer):
    return Reason(answer["kind"], answer["facts"])


@pytest.mark.parametrize("op", WORKING)
def test_what_people_write_is_captured(op, hopper):
    static = hopper[op]

    assert static["failure"] is None, static["failure"]
    assert (static["identity"]["unknown"] or {}).get("kind") == WITHOUT_A_KERNEL.get(op)
    assert bool(static["binaries"]) == (op not in WITHOUT_A_KERNEL)


@pytest.mark.nightly
@pytest.mark.parametrize("target", OTHERS)
@pytest.mark.parametrize("op", WORKING)
def test_it_is_captured_for_other_targets_too(op, target, others):
    static = case(others[target][op])

    assert static["failure"] is None, static["failure"]
    assert (static["identity"]["unknown"] or {}).get("kind") == WITHOUT_A_KERNEL.get(op)


@pytest.mark.nightly
def test_launches_are_the_ones_that_the_targets_board_would_get(hopper, others):
    grids = {
        "sm_90": hopper["persistent"]["identity"]["launches"][0]["grid"],
        **{target: case(ops["persistent"])["identity"]["launches"][0]["grid"] for target, ops in others.items()},
    }
    boards = {"sm_90": [132, 1, 1], "sm_100": [148, 1, 1], "gfx942": [256, 1, 1]}

    assert grids == {target: boards[target] for target in ("sm_90", *OTHERS)}


LACKING = TEXTS["lacking"]


@pytest.mark.nightly
def test_a_tool_that_triton_does_not_bring_is_no_fault_of_the_kernel():
    """Before 3.5 Triton asks for ROCm's linker, and finds none on a machine without ROCm."""
    done = subprocess.run([sys.executable, "-c", LACKING], capture_output=True, text=True, check=True)

    assert done.stdout.startswith("None None Triton") and "ld.lld not found" in done.stdout


@pytest.mark.skipif(triton_versions.ROCM_LINKER, reason="this Triton brings the linker")
def test_without_rocms_linker_no_case_is_blamed(tmp_path):
    write(tmp_path, "scale", SCALE)

    static = case(compiled(run(tmp_path, ["scale"], "gfx942", tmp_path / "cache"))["scale"])

    assert static["failure"] is None
    assert static["identity"]["unknown"]["kind"] == "captured_no_tool"


def test_registers_that_a_wrapper_asks_for_are_the_kernels_own(hopper):
    (launch,), (binary,) = hopper["by_registers"]["identity"]["launches"], hopper["by_registers"]["binaries"]

    resident = 65536 // (binary["registers"] * 32 * 8)
    assert launch["grid"] == [min(132 * resident, 1024), 1, 1]
    assert launch["arguments"]["rows"] == "1024"


@triton_versions.needs_descriptors
def test_descriptors_are_told_by_what_they_describe(hopper):
    (launch,) = hopper["tma"]["identity"]["launches"]

    assert launch["arguments"]["x"].startswith("TensorDescriptor{'base': #0 float32[64,64](64,1)@16")
    assert "'block_shape': [32, 64]" in launch["arguments"]["x"]


@pytest.mark.nightly
@triton_versions.needs_descriptors
@triton_versions.needs_rocm_linker
def test_memory_that_a_kernel_needs_is_allocated_by_the_ops_own_function(hopper, others):
    def allocated(answer):
        return [text for text in answer["identity"]["operations"] if "torch.int8" in text]

    assert len(allocated(hopper["tma_on_device"])) == 1
    assert allocated(case(others["gfx942"]["tma_on_device"])) == []


def test_backward_is_captured_with_forward(hopper):
    operations = hopper["differentiated"]["identity"]["operations"]

    assert operations.count("launch _scale") == 2
    assert any(text.startswith("aten.clone") for text in operations)


@pytest.mark.parametrize("op", UNCAPTURED)
def test_what_cannot_be_captured_is_unknown_and_says_why(op, hopper):
    _, kind, what = UNCAPTURED[op]
    why = hopper[op]["identity"]["unknown"]

    assert why["kind"] == kind
    assert hopper[op]["failure"] is None
    if what is not None:
        assert what in {why["facts"].get("what"), why["facts"].get("package")}
    if kind not in {"captured_nothing", "captured_package"}:
        part = "baseline" if op in BASELINES else "triton"
        assert why["facts"]["file"] == f"{op}_{part}.py"
        assert why["facts"]["line"] > 3
    assert sentence(reason(why)).endswith(".")


@pytest.mark.parametrize("op", UNCOMPILED)
def test_what_does_not_compile_is_a_failure_with_the_compilers_own_words(op, hopper):
    _, words, line = UNCOMPILED[op]
    reason = hopper[op]["failure"]

    assert reason["kind"] == "compile_failed"
    assert words in reason["facts"]["message"]
    assert "/tmp" not in reason["facts"]["message"]
    assert (reason["facts"]["kernel"], reason["facts"]["target"]) == ("_scale", "sm_90")
    assert reason["facts"]["file"] == f"{op}_triton.py"
    assert line is None or reason["facts"]["line"] == line
    assert hopper[op]["identity"]["unknown"] == reason
