"""Which faults and slow-downs, planted in this repository's kernels in CUDA C++, perfci finds. Needs a GPU.

    python benchmarks/planted_cuda.py                        # all, about eight minutes of an H200
    python benchmarks/planted_cuda.py faults --jobs 4        # or same, comments, slower
    python benchmarks/planted_cuda.py slower --percent 1.5 3 --out /tmp/planted

comments   in each .cu and .py file, which change nothing: UNCHANGED
same       the same change with every case timed beside its base, three times: nothing is slower or faster
slower     kernels that do so many percent of their rows or steps twice: REGRESSED
faults     masks, races and memory that is read before it is written: WRONG

Each change is a branch of a repository with the four ops, in the CUDA C++ of this one, judged by `perfci check` beside
its base. One check has one change in each op. The exit code is 1 if a verdict is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("faults", "comments", "slower", "same")
PERCENT = (1.5, 3.0, 5.0, 10.0)
LIMIT_S = 400.0  # of one `perfci check`
TIMES_SAME = 3  # checks of changes that change nothing, each with other inputs

KEPT = {"broadcast": (4, 6), "softmax": (4, 5), "rms_norm": (2, 3), "matmul": (0, 5)}
"""Op, and of its performance suite the cases that are timed.

In others what is planted is no slow-down. It takes registers from rms_norm in float32, which then has twice the blocks
on a processor and is 14 % faster.
"""


@dataclass(frozen=True)
class Edit:
    """A text that stands in a file below kernels/, `times` times, and what stands there instead."""

    file: str
    before: str
    after: str
    times: int = 1

    def make(self, text: str) -> str:
        """The file's text with the edit."""
        if text.count(self.before) != self.times:
            raise ValueError(f"{self.file} has {self.before!r} {text.count(self.before)} times, not {self.times}")
        return text.replace(self.before, self.after)


@dataclass(frozen=True)
class Fault:
    """One planted fault of one op."""

    op: str
    kind: str
    name: str
    edits: tuple[Edit, ...]
    certain: bool = True  # a race may not show


def _fault(op: str, kind: str, name: str, before: str, after: str, *, times: int = 1, certain: bool = True) -> Fault:
    return Fault(op, kind, name, (Edit(f"{op}/{op}.cu", before, after, times),), certain)


FAULTS = (
    _fault("broadcast", "mask", "threads beyond the row write", "if (col >= cols) return;", ""),
    _fault("broadcast", "mask", "a row too many", "i < depth && row < rows;", "i < depth && row <= rows;"),
    _fault("broadcast", "uninitialised", "the last elements are not written", "j < SIZE && first + j < total;",
           "j < SIZE && first + j + 1 < total;"),
    _fault("broadcast", "stride", "the row's stride ignored", "widen(bias[col * stride])", "widen(bias[col])"),
    _fault("broadcast", "index", "the column after the last one is no first one",
           "col = col + 1 == cols ? 0 : col + 1;", "col = col == cols ? 0 : col + 1;"),
    _fault("softmax", "mask", "columns beyond a row are zeros",
           "load<VECTORS>(value, x + row * row_stride, col_stride, 0, cols, -INFINITE);",
           "load<VECTORS>(value, x + row * row_stride, col_stride, 0, cols, 0.0f);"),
    _fault("softmax", "uninitialised", "maxima of a warp that is not there", "top = join_row<Most>(top, tops);",
           "top = join_row<Most>(top, tops); if (blockDim.x > 32) top = fmaxf(top, tops[blockDim.x / 32]);"),
    _fault("softmax", "race", "sums where other warps still read maxima",
           "const float scale = 1.0f / join_row<Add>(total, totals);",
           "const float scale = 1.0f / join_row<Add>(total, tops);", certain=False),
    _fault("softmax", "rescaling", "the sum is not rescaled", "total *= power(top - shift);", ""),
    _fault("softmax", "special values", "a chunk of -inf alone gives NaN",
           "const float shift = next == -INFINITE ? 0.0f : next;", "const float shift = next;"),
    _fault("rms_norm", "mask", "the last column of a row is left out",
           "(given, row, 0, given.cols);", "(given, row, 0, given.cols - 1);"),
    _fault("rms_norm", "uninitialised", "a part too many is read", "part < parts; part += 32",
           "part <= parts; part += 32"),
    _fault("rms_norm", "race", "no second place for what warps join", "turn = 1 - turn;", "", times=2, certain=False),
    _fault("rms_norm", "formula", "eps beside the root", "return rsqrtf(squares / static_cast<float>(cols) + eps);",
           "return 1.0f / (sqrtf(squares / static_cast<float>(cols)) + eps);"),
    _fault("rms_norm", "stale output", "the roots of later rows are not written",
           "if (given.rstd && threadIdx.x == 0) given", "if (given.rstd && threadIdx.x + row == 0) given", times=2),
    _fault("matmul", "mask", "an element beyond k is taken along", "min(8ll, inners - inner)",
           "min(8ll, inners - inner + 1)"),
    _fault("matmul", "uninitialised", "a step's copies are not waited for", '::"n"(STAGES - 2)', '::"n"(STAGES - 1)',
           certain=False),
    _fault("matmul", "race", "a stage is written while others read it",
           "__syncthreads();  // everyone's copies are there, and nobody", "// nobody", certain=False),
    _fault("matmul", "epilogue", "the bias of the first of eight columns", "widen(bias[(col + j) * bias_stride])",
           "widen(bias[col * bias_stride])"),
    _fault("matmul", "special values", "ReLU swallows NaN", "case RELU: return x < 0.0f ? 0.0f : x;",
           "case RELU: return fmaxf(x, 0.0f);"),
)  # fmt: skip


def list_slower(op: str, percent: float) -> list[Edit]:
    """What makes an op take so many percent longer in the cases that are kept."""
    share = f"* {round(10 * percent)} / 1000"
    source = f"{op}/{op}.cu"
    if op == "matmul":  # a block begins with so many of its steps, and then forgets their sums
        steps = "    const long long steps = (k + DEPTH - 1) / DEPTH;\n"
        more = f"(steps * {round(10 * percent)} + blockIdx.x * 617ll % 1000) / 1000"  # parts of a step by the block
        first = "static_cast<long long>(ahead) * DEPTH"
        loop = "    for (long long step = 0; step < steps; ++step) {\n"
        later = "if (step + STAGES - 1 < steps) copy_stage(next, (step + STAGES - 1) * DEPTH);"
        inner = "for (int inner = 0; inner < DEPTH; inner += 16) {\n            // Fragments of 16 x 16"
        zero = "for (int i = 0; i < DOWN * ALONG * 4; ++i) sum[i / (ALONG * 4)][i / 4 % ALONG][i % 4] = 0;"
        forget = f"        if (step == more) {{\n#pragma unroll\n            {zero}\n        }}\n"
        return [
            Edit(source, steps, f"{steps}    const long long more = {more};\n"),
            Edit(source, "if (ahead < steps) copy_stage", "if (ahead < steps + more) copy_stage"),
            Edit(source, first, "(ahead < more ? ahead : ahead - more) * DEPTH"),
            Edit(source, loop, loop.replace("< steps;", "< steps + more;")),
            Edit(source, later, "{ const long long far = step + STAGES - 1; if (far < steps + more) "
                                "copy_stage(next, (far < more ? far : far - more) * DEPTH); }"),
            Edit(source, f"#pragma unroll\n        {inner}", f"{forget}#pragma unroll\n        {inner}"),
        ]  # fmt: skip
    if op == "broadcast":
        row = "long long row = blockIdx.x / blocks * blockDim.y * depth + threadIdx.y;"
        grid = "grid = _launch.tiles(rows, down * depth) * blocks"
        more = f"{grid} {share.replace('/', '//')} // blocks * blocks + _launch.tiles(rows, down * depth) * blocks"
        return [Edit(source, row, f"{row} if (row >= rows) row -= rows;"), Edit(f"{op}/{op}_cuda.py", grid, more)]
    rows = "given.rows" if op == "rms_norm" else "rows"
    loop = "for (long long first = static_cast<long long>(blockIdx.x) * blockDim.y; first < {rows}; first += step) {{"
    ends = f"{rows} + {rows} {share}"
    inside, row = f"first + threadIdx.y < {rows};", "inside ? first + threadIdx.y :"
    again = f"(first < {rows} ? first : first - {rows}) + threadIdx.y"
    return [
        Edit(source, loop.format(rows=rows), loop.format(rows=ends)),
        Edit(source, f"const bool inside = {inside}", f"const bool inside = {again} < {rows};"),
        Edit(source, row, f"inside ? {again} :"),
    ]


def list_comments(op: str) -> list[Edit]:
    """A line of comment in the .cu file, and one in the Python beside it."""
    first = '#include "_elements.cuh"\n'
    return [
        Edit(f"{op}/{op}.cu", first, f"// What it includes has no header of CUDA's.\n{first}"),
        Edit(f"{op}/{op}_cuda.py", "import torch\n", "import torch  # for tensors alone\n"),
    ]


@dataclass
class Change:
    """One branch, and what `perfci check` says of it."""

    kind: str
    name: str
    edits: Mapping[str, Sequence[Edit]]  # by op
    options: Sequence[str]
    faults: Mapping[str, Fault] = field(default_factory=dict)  # by op
    rows: list[dict[str, object]] = field(default_factory=list)
    seconds: float = 0.0

    def tell(self) -> list[tuple[str, bool]]:
        """A line for each op, and whether it is as expected."""
        return [self._tell_op(op) for op in self.edits]

    def _tell_op(self, op: str) -> tuple[str, bool]:
        rows = [row for row in self.rows if str(row["op"]).partition("@")[0] == op]
        verdicts = {str(row["verdict"]) for row in rows}
        seen = " ".join(sorted(verdicts)) or "not judged"
        timed = [row for row in rows if row.get("kernel_us") and row.get("base_us")]
        if self.kind == "faults":
            fault = self.faults[op]
            reasons = sorted({str(row["reason"]["kind"]) for row in rows if row.get("reason")})  # type: ignore[index]
            text = f"{op}: {fault.kind}, {fault.name}: {seen} ({', '.join(reasons)})"
            return text, "WRONG" in verdicts or ("ERROR" in verdicts and bool(rows)) or not fault.certain
        times = ", ".join(
            f"{float(row['kernel_us']) / float(row['base_us']) - 1:+.2%} {row['verdict']}"  # type: ignore[arg-type]
            for row in timed
        )
        if self.kind == "slower":
            return f"{op}: {times or seen}", bool(timed) and all(row["verdict"] == "REGRESSED" for row in timed)
        return f"{op}: {times or seen}", bool(rows) and verdicts <= {"UNCHANGED", "PASS"}


def list_changes(kinds: Sequence[str], percent: Sequence[float]) -> list[Change]:
    """The changes of some kinds, those first that may be judged side by side."""
    changes = []
    if "faults" in kinds:
        for number in range(max(sum(fault.op == op for fault in FAULTS) for op in KEPT)):
            chosen = {op: [fault for fault in FAULTS if fault.op == op][number] for op in KEPT}
            edits = {op: fault.edits for op, fault in chosen.items()}
            changes.append(Change("faults", f"faults-{number}", edits, ["--suite", "accuracy"], chosen))
    timed = ["--suite", "performance"]
    if "comments" in kinds:
        changes.append(Change("comments", "comments", {op: list_comments(op) for op in KEPT}, timed))
    if "slower" in kinds:
        for many in percent:
            changes.append(Change("slower", f"slower-{many:g}", {op: list_slower(op, many) for op in KEPT}, timed))
    if "same" in kinds:
        edits = {op: list_comments(op) for op in KEPT}
        changes += [Change("same", f"same-{number}", edits, [*timed, "--duel", "all"]) for number in range(TIMES_SAME)]
    return changes


def make_project(project: Path) -> None:
    """A repository with the four ops on the branch main, which times the kept cases alone."""
    kernels = project / "kernels"
    shutil.copytree(ROOT / "kernels", kernels, ignore=shutil.ignore_patterns("__pycache__", "_chains", "tuned"))
    for folder in kernels.iterdir():
        if folder.is_dir() and folder.name not in {*KEPT, "_devices"}:
            shutil.rmtree(folder)
    for op, kept in KEPT.items():
        for backend in ("cutedsl", "cutile", "tilelang"):
            (kernels / op / f"{op}_{backend}.py").unlink(missing_ok=True)
        suite = kernels / op / f"{op}_performance.py"
        line = f"performance = replace(performance, cases=tuple(performance.cases[at] for at in {kept}), peers={{}})"
        text = suite.read_text().replace('if __name__ == "__main__":', f'{line}\nif __name__ == "__main__":')
        suite.write_text(text.replace("import perfci\n", "import perfci\nfrom dataclasses import replace\n", 1))
    (project / "pyproject.toml").write_text("[tool.perfci]\n")
    (project / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(project, "init", "-q", "-b", "main")
    git(project, "add", "--all")
    git(project, "commit", "-q", "-m", "base")
    git(project, "checkout", "-q", "-b", "topic")


def git(project: Path, *arguments: str) -> None:
    people = [f"GIT_{role}_{part}" for role in ("AUTHOR", "COMMITTER") for part in ("NAME", "EMAIL")]
    env = os.environ | {"GIT_CONFIG_GLOBAL": os.devnull} | dict.fromkeys(people, "tester@example.org")
    subprocess.run(["git", "-C", str(project), *arguments], check=True, env=env, stdout=subprocess.DEVNULL)


def plant(project: Path, change: Change) -> None:
    """Make the edits and commit them. Raises ValueError if a file is not the one that an edit was written for."""
    for edit in (edit for edits in change.edits.values() for edit in edits):
        path = project / "kernels" / edit.file
        path.write_text(edit.make(path.read_text()))
    git(project, "commit", "-q", "-a", "-m", change.name)


def judge(change: Change, folder: Path, out: Path | None) -> None:
    """Have perfci judge a change in a copy of the project."""
    home = folder / change.name
    (home / "tmp").mkdir(parents=True)
    shutil.copytree(folder / "project", home / "project")
    plant(home / "project", change)
    ops = [f"{op}@cuda" for op in change.edits]
    command = [
        sys.executable,
        "-m",
        "perfci",
        "check",
        *ops,
        "--device",
        "cuda",
        "--against",
        "main",
        "--format",
        "json",
    ]
    # The device's lock is a temporary file: checks of accuracy alone may run side by side.
    env = os.environ | {"PYTHONPATH": str(ROOT)} | ({"TMPDIR": str(home / "tmp")} if change.kind == "faults" else {})
    began = time.monotonic()
    done = subprocess.run(
        [*command, *change.options, "--project", str(home / "project")],
        env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S,
    )  # fmt: skip
    change.seconds = time.monotonic() - began
    try:
        change.rows = json.loads(done.stdout)["verdicts"]
    except ValueError:
        print(f"{change.name} gave no answer: {done.stdout[-300:]} {done.stderr[-600:]}", file=sys.stderr)
    if out:
        (out / f"{change.name}.json").write_text(done.stdout)
        (out / f"{change.name}.txt").write_text(done.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--percent", type=float, nargs="+", default=PERCENT, help="by how much kernels are slower")
    parser.add_argument("--jobs", type=int, default=4, help="checks of faults at a time")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for what perfci prints")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"there is no kind {', '.join(sorted(unknown))}")
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
    expected = True
    with tempfile.TemporaryDirectory(prefix="perfci-planted-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        make_project(folder / "project")
        changes = list_changes(options.kinds or KINDS, options.percent)
        waiting: queue.SimpleQueue[Change] = queue.SimpleQueue()
        for change in changes:
            if change.kind == "faults":
                waiting.put(change)

        def work() -> None:
            while True:
                try:
                    judge(waiting.get_nowait(), folder, options.out)
                except queue.Empty:
                    return

        threads = [threading.Thread(target=work) for _ in range(options.jobs)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for change in changes:
            if change.kind != "faults":
                judge(change, folder, options.out)
            print(f"{change.name} ({change.seconds:.0f} s)", flush=True)
            for text, is_expected in change.tell():
                expected &= is_expected
                print(f"  {'ok ' if is_expected else 'ODD'} {text}", flush=True)
    return 0 if expected else 1


if __name__ == "__main__":
    sys.exit(main())
