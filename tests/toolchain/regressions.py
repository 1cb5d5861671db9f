"""Regressions that others have published, as small ops: what is compiled before and after, and where it is said.

python -m tests.toolchain.regressions              # compile all with both toolchains, and write figures.json
python -m tests.toolchain.regressions delta_rule   # only this one

A toolchain that is missing is installed in the cache, 200 to 700 MB each. Takes minutes.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from perfci.core import settings
from perfci.core.codec import decode, encode
from perfci.core.model import KernelBinary, StaticOp
from perfci.extensions.lab.commands import toolchain
from tests.static_ops import HEADER, ROOT, compiled, edited, run, write

SOURCES = {op: HEADER + text for op, text in yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text()).items()}

FIGURES = Path(__file__).with_name("figures.json")


@dataclass(frozen=True)
class Regression:
    """A kernel that a new release, or a change of the source, made slower."""

    op: str
    thread: str  # where it was published
    was: str  # Triton's release
    now: str
    target: str
    kernel: str  # source
    before: str | None = None  # source before, if it is the source that changed


def _matmul(side: int, m: int, n: int, stages: int, warps: int) -> str:
    given = {"side = SIDE": f"side = {side}", "STAGES": str(stages), "WARPS": str(warps)}
    text = edited(SOURCES["matmul"], *given.items())
    return edited(text, ("side, M)", f"side, {m})"), ("side, N)", f"side, {n})"), ("=M,", f"={m},"), ("=N,", f"={n},"))


GITHUB = "https://github.com"
TRITON = f"{GITHUB}/triton-lang/triton"
KNOWN = (
    Regression("small_gemm", f"{TRITON}/issues/7096", "3.1.0", "3.4.0", "sm_90", _matmul(1024, 64, 128, 4, 4)),
    Regression("tutorial_matmul", f"{TRITON}/issues/7085", "3.2.0", "3.3.1", "sm_80", _matmul(1024, 128, 256, 3, 8)),
    Regression("delta_rule", f"{TRITON}/issues/9757", "3.5.1", "3.6.0", "sm_90", SOURCES["delta_rule"]),
    Regression("precise_matmul", f"{TRITON}/issues/11526", "3.6.0", "3.8.0", "sm_89", SOURCES["precise"]),
    Regression("extend", f"{GITHUB}/sgl-project/sglang/pull/34741", "3.6.0", "3.7.1", "gfx950", SOURCES["extend"]),
    Regression("norm", f"{TRITON}/issues/11127", "3.6.0", "3.7.1", "sm_100", SOURCES["norm"]),
    Regression("strided", f"{GITHUB}/vllm-project/vllm/pull/18161", "3.2.0", "3.3.1", "sm_90", SOURCES["strided"]),
    Regression("reduced", f"{TRITON}/issues/9703", "3.5.1", "3.6.0", "sm_90", SOURCES["reduced"]),
    Regression(
        "swiglu", f"{GITHUB}/linkedin/Liger-Kernel/pull/1350", "3.7.1", "3.7.1", "sm_90",
        edited(SOURCES["swiglu"], ("tl.float32, cols", "tl.float64, cols")), before=SOURCES["swiglu"],
    ),
)  # fmt: skip

Figures = Mapping[str, Mapping[str, tuple[KernelBinary, ...]]]
"""Op -> was or now -> what it compiled to."""


def read_figures() -> Figures:
    """What was recorded."""
    return decode(FIGURES.read_bytes(), dict[str, dict[str, tuple[KernelBinary, ...]]])


def compile_op(regression: Regression, release: str, source: str) -> tuple[KernelBinary, ...]:
    """The binaries of an op as a release of Triton compiles it. Raises UsageError if that cannot be installed."""
    python = toolchain.prepare([f"triton=={release}"], settings.at(ROOT), lambda folder: print(f"into {folder}"))
    (site,) = Path(python).parents[1].glob("lib/python*/site-packages")
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), regression.op, source)
        path = os.pathsep.join([str(site), str(ROOT)])
        program = "from perfci.worker.child import main; main()"
        cache, ops = Path(folder, "cache"), [regression.op]
        messages = run(Path(folder), ops, regression.target, cache, program=program, PYTHONPATH=path)
        op = decode(encode(compiled(messages)[regression.op]), StaticOp)
    assert op.failure is None and op.cases[0].failure is None, op
    return tuple(replace(binary, artefact=binary.artefact[:8]) for binary in op.cases[0].binaries)


def main(names: list[str]) -> None:
    """Compile ops, and write down what they compile to."""
    figures = dict(read_figures()) if FIGURES.exists() else {}
    for regression in (regression for regression in KNOWN if not names or regression.op in names):
        was = compile_op(regression, regression.was, regression.before or regression.kernel)
        now = compile_op(regression, regression.now, regression.kernel)
        figures[regression.op] = {"was": was, "now": now}
        FIGURES.write_bytes(encode(dict(sorted(figures.items()))) + b"\n")
        print(regression.op, *was, *now, sep="\n  ")


if __name__ == "__main__":
    main(sys.argv[1:])
