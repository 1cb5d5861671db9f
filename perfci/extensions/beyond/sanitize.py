"""An op's probe cases under sanitizers: NVIDIA's compute-sanitizer, and those that Triton compiles into its kernels.

Each is one more process of the op, started as a worker is. compute-sanitizer takes the place of its Python.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import importlib.util
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from perfci.core.files import read_regular
from perfci.core.model import AccuracyCase, Fact, Reason
from perfci.store.files import write_atomically
from perfci.worker.tasks import WorkerEnvironment

PROGRAM = "compute-sanitizer"
TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
MODES = ("consan", "iisan", "gsan")
"""Of TRITON_INSTRUMENTATION_MODE: races of shared memory, unaligned descriptors, races of global memory"""

VARIABLE = "TRITON_INSTRUMENTATION_MODE"
LAWFUL = {"TRITON_FPSAN_HOMOMORPHIC_CASTS": "1"}
"""Of fpsan: the cast of a sum is the sum of the casts. Without it, other tiles with casts are other formulas"""

LINES = {"TRITON_DISABLE_LINE_INFO": "0"}
"""Kernels have lines, so that a finding can name one"""

APART = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
"""Under compute-sanitizer: no array shares memory, so that places past its end are seen"""

LOG, SCRIPT = "sanitizer.log", "sanitized-python"
OPTIONS = ("--report-api-errors", "no", "--print-limit", "1000", "--target-processes", "all")

_HEADS = ("Invalid ", "Misaligned ", "Uninitialized ", "Barrier error", "Error: ", "Warning: ", "Address ")
_PLACE = re.compile(r"\bat (?P<kernel>[^+\n]+)\+0x[0-9a-f]+(?: in (?P<file>\S+):(?P<line>\d+))?")
_ASSERTED = re.compile(r"^(\S*?):(\d+): (.*?): block: \[[\d,]+\], thread: \[[\d,]+\] Assertion `(.*?)` failed", re.M)
"""How CUDA prints an assertion of a kernel: file, line, function, text"""
_FULL, _NAMELESS = r"[^`\n]*\bGSan\b[^`\n]*|Vector clock[^`\n]*", ("", "unknown", "<unknown>")
"""What gsan asserts of its tables, which says nothing of a kernel, and what Triton calls what it has no name of"""
_REFUSED = re.compile(
    rf"^=+ Error: (.*(?:not supported|before first instrumented)[^.\n]*)|Assertion `({_FULL})` failed", re.M
)
_OF_TORCH = re.compile(r"^(void )?(at::|c10::|cub::|cutlass::)|^(cublas|cudnn|ampere_|sm\d\d_|nvjet)")


@dataclass(frozen=True)
class Finding:
    """What a sanitizer reported of one line of a kernel."""

    what: str
    kernel: str
    place: str  # file:line, empty if it has none


def list_tools(device: str) -> list[str]:
    """Returns the sanitizers that are installed: NVIDIA's, and on a GPU those of this Triton."""
    tools = list(TOOLS) if shutil.which(PROGRAM) else []
    return [*tools, *(find_modes() if device == "cuda" else [])]


def find_modes() -> list[str]:
    """Returns the sanitizers that the installed Triton can compile in."""
    return [mode for mode in MODES if compiles_in(mode)]


def compiles_in(mode: str) -> bool:
    """Whether the installed Triton knows this TRITON_INSTRUMENTATION_MODE, by the text of its compiler."""
    spec = importlib.util.find_spec("triton")
    if spec is None or spec.origin is None:
        return False
    file = Path(spec.origin).parent / "backends" / "nvidia" / "compiler.py"
    return f'"{mode}"'.encode() in (read_regular(file) if file.is_file() else b"")


def surround(around: WorkerEnvironment, tool: str) -> WorkerEnvironment:
    """Returns the environment of a worker under a sanitizer."""
    if tool not in TOOLS:
        more = LINES if tool in MODES else LAWFUL
        return dataclasses.replace(around, environment={**around.environment, VARIABLE: tool, **more})
    folder = around.writable[0]
    script, log, environment = folder / SCRIPT, folder / LOG, {**around.environment, **APART, **LINES}
    log.unlink(missing_ok=True)
    command = [shutil.which(PROGRAM) or PROGRAM, "--tool", tool, "--log-file", str(log), *OPTIONS, around.python]
    write_atomically(script, f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n'.encode())
    script.chmod(0o700)
    return dataclasses.replace(around, environment=environment, python=str(script))


@contextlib.contextmanager
def watched_memory() -> Iterator[None]:
    """Under gsan, arrays that are made meanwhile lie in its memory: it watches no other."""
    if os.environ.get(VARIABLE) != "gsan":
        yield
        return
    import torch
    from triton.experimental import gsan

    with torch.cuda.use_mem_pool(gsan.create_mem_pool()):
        yield


def follow_log(around: WorkerEnvironment, tool: str) -> Callable[[], str]:
    """Returns what reads all that a tool writes from now on: compute-sanitizer to its log, Triton's to the worker's."""
    log = around.writable[0] / LOG if tool in TOOLS else around.log
    start = log.stat().st_size if log.is_file() else 0
    return lambda: read_regular(log)[start:].decode(errors="replace") if log.is_file() else ""


def parse(text: str) -> Counter[Finding]:
    """Returns the findings in what a sanitizer wrote: each line of a kernel once, with how often. Torch's are left out.

    What names no kernel is about the process, such as an exit status that is not 0.
    """
    lines = [line.removeprefix("=========").removeprefix(" ") for line in text.splitlines() if line.startswith("===")]
    findings = Counter[Finding]()
    for at, line in enumerate(lines):
        if line.startswith(_HEADS):
            match = _PLACE.search("\n".join(_take_record(lines[at:])))
            if match and not _OF_TORCH.match(kernel := match["kernel"].strip()):
                place = f"{match['file']}:{match['line']}" if match["file"] else ""
                findings[Finding(line.partition(" at ")[0].rstrip("."), kernel, place)] += 1
    for file, line, kernel, what in _ASSERTED.findall(text):
        if not re.fullmatch(_FULL, what):
            place = "" if file in _NAMELESS else f"{file}:{line}"
            findings[Finding(what, "-" if kernel in _NAMELESS else kernel, place)] += 1
    return findings


def _take_record(lines: list[str]) -> Iterator[str]:
    """The lines of one finding: the first, and those that are indented behind it."""
    yield lines[0]
    for line in lines[1:]:
        if not line.startswith(" ") or "Saved host backtrace" in line:
            return
        yield line


def tell(tool: str, log: str, failure: Reason | None, root: Path = Path()) -> Iterator[AccuracyCase]:
    """Yields a check of a sanitizer: what its log has, why it has nothing, or that it is right.

    root: of the project that the worker ran, whose files are named from there.
    """
    check, findings = AccuracyCase(f"sanitize={tool}", "normal", "contiguous", 0), parse(log)
    for finding, count in findings.items():
        where = finding.place.removeprefix(f"{root}/") or "-"
        kernel = finding.kernel if finding.kernel != "-" else _name_function(root, where)
        facts: dict[str, Fact] = {"tool": tool, "what": finding.what, "kernel": kernel, "where": where}
        yield dataclasses.replace(check, failure=Reason("sanitizer_found", {**facts, "count": count}))
    if not findings and (refused := _REFUSED.search(log)):
        why = refused[1] or refused[2]
        yield dataclasses.replace(check, unchecked=Reason("sanitizer_refused", {"tool": tool, "why": why}))
    elif not findings:
        yield dataclasses.replace(check, failure=failure, raised=failure is not None)


def _name_function(root: Path, where: str) -> str:
    """Returns the function of a project's file that has a line, which an assertion of Triton's does not name.

    where: FILE:LINE, by the word of the op's code. A file elsewhere is not opened.
    """
    file, _, line = where.rpartition(":")
    if not file or not (root / file).resolve().is_relative_to(root.resolve()):
        return "-"
    try:
        tree = ast.parse(read_regular(root / file))
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return "-"
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return next((node.name for node in functions if node.lineno <= int(line) <= (node.end_lineno or 0)), "-")
