"""Brings functions of other people's libraries in by `perfci new`, drawn by a seed, and checks each on a CPU.

    python benchmarks/library_draws.py list CLONE --seed 47
    python benchmarks/library_draws.py run draws/first.py CLONES [--only NAME ...] [--out DIR]

`list` prints the public functions, autograd.Functions and modules of a clone that launch a Triton kernel, in an order
drawn by the seed. `run` takes a file with a reference for each function, written before the first try, and a folder
with the clones. What the libraries import has to be on PYTHONPATH. A row is printed for each: what `perfci new` and
`perfci check` said, their exit codes and CPU seconds. Read the kernel of every verdict: this program does not know
whether it holds up.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import ctypes
import importlib.util
import os
import random
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LEFT_OUT = re.compile(
    r"(^|/)(tests?|benchmarks?|examples?|scripts|docs|tools|gluon|comms?|npu|amd|_?ascend|tutorial|experimental|op_tests|"
    r"evaluation|configs|distributed|dlinfer)(/|$)|test_|_perf|iris|gluon", re.IGNORECASE
)  # fmt: skip
"""Paths of what no one calls, or of other devices than a GPU."""
KERNEL = re.compile(r"(?!.*(jit|dict|_cache$|list|^torch)).*_")
SECONDS = 300  # of one command
ADOPT = 36  # of prctl(): processes that a child leaves behind become this one's, whose CPU seconds count then


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    listed = commands.add_parser("list", help="the functions of a library in the order of a draw")
    listed.add_argument("clone", type=Path)
    listed.add_argument("--seed", type=int, default=47)
    run = commands.add_parser("run", help="bring in the functions of a draw, and check them")
    run.add_argument("draw", type=Path)
    run.add_argument("clones", type=Path)
    run.add_argument("--only", nargs="+", default=[])
    run.add_argument("--out", type=Path, default=Path("drawn"))
    chosen = parser.parse_args()
    if chosen.command == "list":
        functions = sorted(list_functions(chosen.clone))
        for path, line, name in random.Random(f"{chosen.seed}-{chosen.clone.name}").sample(functions, len(functions)):
            print(f"{path}:{line}\t{name}")
        return
    spec = importlib.util.spec_from_file_location("drawn", chosen.draw)
    assert spec is not None
    assert spec.loader is not None
    drawn = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawn)
    names = [name for name in drawn.DRAWN if not chosen.only or name in chosen.only]
    ctypes.CDLL(None).prctl(ADOPT, 1)
    for name in names:
        print("| " + " | ".join(try_one(name, *drawn.DRAWN[name], chosen)) + " |", flush=True)


def list_functions(clone: Path) -> Iterator[tuple[str, int, str]]:
    """The public functions, autograd.Functions and modules of a clone that launch a Triton kernel."""
    for path in clone.rglob("*.py"):
        place, text = str(path.relative_to(clone)), path.read_text(errors="replace")
        try:
            body = ast.parse(text).body if "triton" in text and not LEFT_OUT.search(place) else []
        except SyntaxError:
            continue
        functions = [node for node in body if isinstance(node, ast.FunctionDef)]
        plain = [node for node in functions if not any("jit" in ast.unparse(mark) for mark in node.decorator_list)]
        direct = {node.name for node in plain if launches(node)}
        for node in plain:
            if node.name in direct and not node.name.startswith(("_", "test", "bench")):
                yield place, node.lineno, node.name
        for node in body:
            if isinstance(node, ast.ClassDef) and re.search("Function|Module", " ".join(map(ast.unparse, node.bases))):
                forward = next((one for one in node.body if getattr(one, "name", "") == "forward"), None)
                if forward and (launches(forward) or direct & {getattr(one, "id", "") for one in ast.walk(forward)}):
                    yield place, node.lineno, node.name


def launches(node: ast.AST) -> bool:
    """Whether a kernel is launched inside: `kernel[grid](...)`, with some arguments."""
    calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and isinstance(one.func, ast.Subscript)]
    named = [call for call in calls if len(call.args) + len(call.keywords) > 2]
    return any(KERNEL.match(ast.unparse(call.func.value)) for call in named)


def try_one(name: str, root: str, source: str, reference: str, chosen: argparse.Namespace) -> tuple[str, ...]:
    """A row: the function, what `perfci new` said first, what `perfci check` said, and the CPU seconds of both."""
    folder = (chosen.out / name).resolve()
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "kernels").mkdir(parents=True)
    (folder / "pyproject.toml").write_text("[tool.perfci]\n")
    shutil.copy(chosen.draw, folder / "refs.py")
    against = reference if "." in reference else f"refs.py:{reference}"
    search = [str((chosen.clones / root).resolve()), *filter(None, [os.environ.get("PYTHONPATH")])]
    around = {**os.environ, "PYTHONPATH": os.pathsep.join(search)}

    def perfci(*words: str) -> tuple[int, str, float]:
        began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        command = [sys.executable, "-m", "perfci", *words]
        try:
            done = subprocess.run(
                command, cwd=folder, env=around, capture_output=True, text=True, timeout=SECONDS, check=False
            )
            code, said = done.returncode, done.stdout + done.stderr
        except subprocess.TimeoutExpired:
            code, said = 124, f"more than {SECONDS} s"
        (folder / f"{words[0]}.log").write_text(said)
        with contextlib.suppress(ChildProcessError):
            while True:
                os.wait()  # for workers
        return code, said, resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began

    made, said, new_s = perfci("new", name, "--from", source, "--reference", against)
    first = (
        "ready" if made == 0 else next((line.strip(" -") for line in said.splitlines() if "not ready" in line), said)
    )
    if not (folder / "kernels" / name).is_dir():
        return name, f"new {made}: {first[:160]!r}", "-", f"{new_s:.1f}", "-"
    judged, said, check_s = perfci("check", name, "--suite", "accuracy")
    verdict = next((word for word in ("WRONG", "ERROR", "INCONCLUSIVE", "VACUOUS", "PASS") if word in said), "?")
    return name, f"new {made}: {first[:80]}", f"check {judged}: {verdict}", f"{new_s:.1f}", f"{check_s:.1f}"


if __name__ == "__main__":
    main()
