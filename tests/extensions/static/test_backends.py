"""Kernels of other compilers than Triton, compiled without a device and held against the base's."""

from pathlib import Path

import pytest
import yaml

torch = pytest.importorskip("torch")

from perfci.cli.main import run  # noqa: E402
from perfci.core.codec import convert  # noqa: E402
from perfci.core.environment import installed_versions  # noqa: E402
from perfci.core.model import StaticOp  # noqa: E402
from perfci.core.wording import sentence  # noqa: E402
from tests import static_ops  # noqa: E402
from tests.git_repositories import begin_topic  # noqa: E402
from tests.static_ops import edited  # noqa: E402

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
KERNEL = TEXTS["kernel"]
LARGER_STACK = edited(
    KERNEL, (".reg .b32 %r<5>;\n", TEXTS["spilled"]), ("add.f32 %f1, %f0, %f0;\n", TEXTS["stored"])
)  # fmt: skip
LOADS = "\n  ".join(f"ld.volatile.global.f32 %g{place}, [%d3+{4 * place}];" for place in range(48))
SUMS = "\n  ".join(f"add.f32 %f0, %f0, %g{place};" for place in reversed(range(48)))
SPILLED = edited(
    KERNEL, (", .param .u32 n)\n", ", .param .u32 n)\n.maxnreg 24\n"),
    (".reg .b32 %r<5>;\n", ".reg .b32 %r<5>;\n.reg .f32 %g<48>;\n"),
    ("add.f32 %f1, %f0, %f0;\n", f"{LOADS}\n  {SUMS}\n  add.f32 %f1, %f0, %f0;\n"),
)  # fmt: skip

NVRTC = installed_versions(["nvidia-cuda-nvrtc"]) and hasattr(torch.cuda, "_compile_kernel")

pytestmark = [pytest.mark.torch, pytest.mark.slow]


def write(root: Path, op: str, kernel: str) -> Path:
    """An op in CUDA C++. Returns its kernel's file."""
    static_ops.write(root, op, kernel.replace("def scale(", f"def {op}("))
    folder = root / op
    for suite in folder.glob("*.py"):
        suite.write_text(suite.read_text().replace(f"{op}_triton", f"{op}_cuda"))
    return (folder / f"{op}_triton.py").rename(folder / f"{op}_cuda.py")


@pytest.fixture(scope="module")
def compiled(tmp_path_factory) -> dict[str, StaticOp]:
    """One op in several variants, as a worker compiles them for sm_90."""
    root = tmp_path_factory.mktemp("kernels")
    variants = {
        "plain": KERNEL,
        "commented": edited(KERNEL, ("ret;", "ret; // the end")),
        "larger_stack": LARGER_STACK,
        "spilled": SPILLED,
        "by_torch": TEXTS["by_torch"],
        "wider": edited(KERNEL, ("// 128), 1, 1, 128", "// 128), 1, 1, 160")),
        "carved": edited(KERNEL, ("    values = [", "    cuda.cuFuncSetAttribute(function, 9, 0)\n    values = [")),
        "cached": edited(KERNEL, ("    values = [", "    cuda.cuFuncSetCacheConfig(function, 2)\n    values = [")),
        "shorter": edited(KERNEL, ("x.numel())]", "x.numel() - 1)]")),
        "impossible": edited(KERNEL, ("1, 1, 128, 1, 1, 0,", "1, 1, 2048, 1, 1, 0,")),
        "unseen": edited(
            KERNEL, ("    values = [", "    cuda.cuMemAlloc_v2(ctypes.byref(module), 64)\n    values = [")
        ),
        "unknown": edited(KERNEL, ('b"scale"', 'b"other"')),
    }
    for op, kernel in variants.items():
        write(root, op, kernel)
    said = static_ops.compiled(static_ops.run(root, list(variants), "sm_90", root / "cache"))
    return {op: convert(body, StaticOp) for op, body in said.items()}


def unknown(op: StaticOp) -> str:
    """Why it is not known what an op's case does."""
    return sentence(op.cases[0].identity.unknown)


def test_a_launch_is_told_of_as_the_driver_was_asked_for_it(compiled):
    (case,) = compiled["plain"].cases
    (launch,) = case.identity.launches
    (binary,) = case.binaries

    assert (launch.kernel, launch.grid, launch.warps, case.identity.unknown) == ("scale", (32, 1, 1), 4, None)
    assert launch.arguments["1"] == "#1 uint8[16384](1)@16+0 in 0"
    assert launch.arguments["2"] == "4096"
    assert 0 < binary.registers < 32 and binary.instructions > 8
    assert (binary.local_bytes, binary.occupancy) == (0, 1)


@pytest.mark.skipif(not NVRTC, reason="there is no NVRTC, or no torch that compiles by it")
def test_what_torch_compiles_by_nvrtc_is_told_of(compiled):
    (case,) = compiled["by_torch"].cases
    (launch,) = case.identity.launches

    assert (launch.kernel, launch.grid, launch.arguments["2"]) == ("twice", (16, 1, 1), "4096")
    assert case.identity.unknown is None


def test_registers_that_do_not_fit_are_told_from_variables_in_local_memory(compiled):
    plain, spilled, larger = (compiled[op].cases[0].binaries[0] for op in ("plain", "spilled", "larger_stack"))

    assert (plain.spill_bytes, plain.local_bytes) == (0, 0)
    assert spilled.spill_bytes == spilled.local_bytes > 64
    assert (larger.spill_bytes, larger.local_bytes) == (None, 112)


def test_a_comment_changes_nothing_and_another_launch_of_the_same_binary_does(compiled):
    variants = ("plain", "commented", "wider", "shorter", "carved", "cached")
    plain, commented, *others = (compiled[op].cases[0] for op in variants)

    assert commented == plain
    for other in others:
        assert other.identity.launches[0].artefact == plain.identity.launches[0].artefact
        assert other.identity != plain.identity


def test_what_the_driver_would_refuse_and_what_is_not_seen_is_said(compiled):
    assert "CUDA error 1:" in unknown(compiled["impossible"]).replace(" (", ": (")
    assert "CUDA error 500" in unknown(compiled["unknown"])
    assert "cuMemAlloc()" in unknown(compiled["unseen"])


@pytest.mark.nightly  # test_judge.py has the gate, and the tests above the figures
def test_the_gate_fails_for_a_larger_stack_and_names_it(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = tmp_path / "work"
    root.mkdir()
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    kernel = write(root / "kernels", "scale", KERNEL)
    write(root / "kernels", "lacking", "import cuda.core\n\n" + KERNEL)
    begin_topic(root)
    kernel.write_text(LARGER_STACK)

    assert run(["static", "--target", "sm_90", "--project", str(root)]) == 2
    first = capsys.readouterr()
    shown = " ".join(first.out.split())
    assert ("scale: compiling" in first.err, "lacking: compiling" in first.err) == (True, False)
    assert "scale: bytes of local memory went from 0 to 112, and local_bytes, in thresholds/ or by default" in shown
    assert "Unchecked: lacking cannot run here, as CUDA C++ needs the module cuda, which" in shown
    assert "1 REGRESSED" in shown and "ERROR" not in shown

    assert run(["static", "--target", "sm_90", "--project", str(root)]) == 2
    again = capsys.readouterr()
    assert "Unchecked: lacking cannot run here" in " ".join(again.out.split())
    assert "compiling" not in again.err  # nor is anything else that was asked before
