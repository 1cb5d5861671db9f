"""Which faults and slow-downs, planted in this repository's kernels of one compiler, perfci finds. Needs a GPU.

    python benchmarks/planted_backends.py                    # all of CUDA C++
    python benchmarks/planted_backends.py faults --jobs 4    # or same, comments, slower
    python benchmarks/planted_backends.py --backend cutile slower --percent 1.5 3 --out /tmp/planted

comments   in the kernels' files, which change nothing: UNCHANGED
same       the same change with every case timed beside its base, three times: nothing is slower or faster
slower     kernels that do so many percent of their rows or steps twice: REGRESSED
faults     masks, races and memory that is read before it is written: WRONG

Each change is a branch of a repository with this compiler's ops, in the kernels of this repository, judged by
`perfci check` beside its base. A check has one fault, or another change in each op. The exit code is 1 if a verdict
is not the expected one.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
KINDS = ("faults", "comments", "slower", "same")
PERCENT = (1.5, 3.0, 5.0, 10.0)
LIMIT_S = 400.0  # of one `perfci check`
TIMES_SAME = 3  # checks of changes that change nothing, each with other inputs

_KEPT = {"broadcast": (4, 6), "softmax": (4, 5), "rms_norm": (2, 3)}
KEPT = {"cuda": {**_KEPT, "matmul": (0, 5)}, "cutile": _KEPT, "cutedsl": _KEPT, "tilelang": _KEPT}
"""Compiler, op, and of the op's performance suite the cases that are timed.

In others of CUDA C++ what is planted is no slow-down. It takes registers from rms_norm in float32, which then has
twice the blocks on a processor and is 14 % faster.
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
    backend: str = "cuda"


def _fault(
    op: str, kind: str, name: str, before: str, after: str, *,
    times: int = 1, certain: bool = True, backend: str = "cuda",
) -> Fault:  # fmt: skip
    return Fault(op, kind, name, (Edit(source_of(op, backend), before, after, times),), certain, backend)


def source_of(op: str, backend: str) -> str:
    """The file below kernels/ that has an op's kernels of a compiler."""
    return f"{op}/{op}.cu" if backend == "cuda" else f"{op}/{op}_{backend}.py"


def _list_faults(backend: str, *faults: tuple[str, str, str, str, str]) -> tuple[Fault, ...]:
    """Faults of another compiler: op, kind, name, and the text before and after."""
    return tuple(_fault(*fault, backend=backend) for fault in faults)


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
    *_list_faults(
        "cutile",
        ("broadcast", "index", "the first columns everywhere", "ct.load(bias, (col,)", "ct.load(bias, (0,)"),
        ("broadcast", "uninitialised", "rows beyond the last whole tile are not written",
         "_launch.tiles(rows, height) *", "max(rows // height, 1) *"),
        ("broadcast", "index", "tiles down and along taken for each other",
         "ct.bid(0) // along, ct.bid(0) % along", "ct.bid(0) // along, ct.bid(0) // along"),
        ("softmax", "mask", "columns beyond a row are zeros",
         "(ROWS, COLS), padding_mode=ct.PaddingMode.NEG_INF", "(ROWS, COLS), padding_mode=ct.PaddingMode.ZERO"),
        ("softmax", "rescaling", "the sum is not rescaled",
         "total = total * ct.exp2((top - shift) * LOG2_E) + ct.sum", "total = total + ct.sum"),
        ("softmax", "special values", "a chunk of -inf alone gives NaN",
         "shift = ct.where(next_top == -math.inf, 0.0, next_top)", "shift = next_top"),
        ("rms_norm", "formula", "eps beside the root", "return ct.rsqrt(squares / ct.astype(cols, ct.float32) + eps)",
         "return 1.0 / (ct.sqrt(squares / ct.astype(cols, ct.float32)) + eps)"),
        ("rms_norm", "mask", "a part's last chunk is left out",
         "range(part * each, ct.minimum((part + 1) * each,", "range(part * each, ct.minimum((part + 1) * each - 1,"),
        ("rms_norm", "index", "the weight of the first chunk everywhere", "ct.load(weight, (0, chunk)",
         "ct.load(weight, (0, 0)"),
    ),
    *_list_faults(
        "cutedsl",
        ("broadcast", "mask", "a row too many", "if row < rows:", "if row <= rows:"),
        ("broadcast", "stride", "the row's stride ignored", "bias + (col + j) * stride", "bias + (col + j)"),
        ("broadcast", "index", "a block's rows overlap", "(HEIGHT * DEPTH) + y", "(HEIGHT * DEPTH - 1) + y"),
        ("softmax", "mask", "columns beyond a row are zeros", "        Float32(-math.inf),\n        VALUES",
         "        Float32(0.0),\n        VALUES"),
        ("softmax", "rescaling", "the sum is not rescaled",
         "total * cute.math.exp2((top - shift) * LOG2_E, fastmath=True)\n", "total\n"),
        ("softmax", "special values", "a chunk of -inf alone gives NaN",
         "shift = Float32(0.0) if higher == low else higher", "shift = higher"),
        ("rms_norm", "uninitialised", "a part too many is read", "while part < parts:", "while part <= parts:"),
        ("rms_norm", "mask", "the last column of a part is left out", "start, last, Float32(0.0), LONG_VALUES",
         "start, last - 1, Float32(0.0), LONG_VALUES"),
        ("rms_norm", "index", "the weight of the first columns everywhere", "_scale(weight, weight_stride, start, cols",
         "_scale(weight, weight_stride, Int64(0), cols"),
    ),
    *_list_faults(
        "tilelang",
        # A row too many would be none: TileLang guards what a program reads and writes by the tensors' sides.
        ("broadcast", "mask", "the last row is not written", "if (row + i < rows) &", "if (row + i + 1 < rows) &"),
        ("broadcast", "index", "the first columns everywhere", "bias[part * along + j, k]", "bias[j, k]"),
        ("softmax", "mask", "columns beyond a row are zeros",
         "-T.infinity(\"float32\"),\n                )\n            T.reduce_max(power, joined, dim=2)",
         "0.0,\n                )\n            T.reduce_max(power, joined, dim=2)"),
        ("softmax", "rescaling", "the sum is not rescaled",
         "total[j] * T.exp2((top[j] - shift[j]) * LOG2_E)", "total[j]"),
        ("rms_norm", "mask", "a part's last chunk is left out", "for turn in T.serial(each):",
         "for turn in T.serial(each - 1):"),
        ("rms_norm", "uninitialised", "a part's sum is not written", "sums[row, part + i] = total[i]",
         "if part > 0:\n                    sums[row, part + i] = total[i]"),
    ),
)  # fmt: skip


def _list_slower_cutile(op: str, permille: int) -> list[Edit]:
    """Blocks beyond the last one begin again."""
    source = source_of(op, "cutile")
    tiles = "ct.num_tiles(out, 0, (ROWS, COLS))"
    if op == "broadcast":
        launch, place = "    with _launch.on(x.device):", "row, col = ct.bid(0) // along, ct.bid(0) % along"
        return [
            Edit(source, launch, f"    grid = (grid[0] + grid[0] * {permille} // 1000,)\n{launch}"),
            Edit(source, place, f"place = ct.bid(0) % (along * {tiles})\n    {place.replace('ct.bid(0)', 'place')}"),
        ]
    place = {"softmax": "place = (ct.bid(0), 0)", "rms_norm": "row = ct.bid(0)\n    value ="}[op]
    return [
        Edit(source, "(_launch.tiles(rows, height),)", f"(_launch.tiles(rows, height) * {1000 + permille} // 1000,)"),
        Edit(source, place, place.replace("ct.bid(0)", f"ct.bid(0) % {tiles}")),
    ]


def _list_slower_cutedsl(op: str, permille: int) -> list[Edit]:
    source = source_of(op, "cutedsl")
    if op == "rms_norm":  # blocks walk the rows
        return [
            Edit(source, "while first < rows:\n        wanted = first + y",
                 f"while first < rows + rows * {permille} // 1000:\n        wanted = first + y\n"
                 "        if wanted >= rows:\n            wanted = wanted - rows"),
        ]  # fmt: skip
    grid = "grid=[blocks, 1, 1]"
    edits = [Edit(source, grid, grid.replace("blocks", f"blocks + blocks * {permille} // 1000"))]
    if op == "softmax":
        wanted = "wanted = Int64(block) * HEIGHT + y\n"
        again = f"{wanted}    if wanted >= rows:\n        wanted = wanted - rows\n"
        return [*edits, Edit(source, wanted, again)]
    first = "first = Int64(block // along) * (HEIGHT * DEPTH) + y\n"
    return [*edits, Edit(source, first, f"{first}    if first >= rows:\n        first = first - rows\n")]


def _list_slower_tilelang(op: str, permille: int) -> list[Edit]:
    """A launch more, of the first rows. Blocks that begin again would have other code: 14 to 79 % from the first."""
    source = source_of(op, "tilelang")
    if op != "rms_norm":
        launch = "        compiled(plan)(given, written"
        sides = ", min(more, MOST_BLOCKS), _launch.tiles(more, min(more, MOST_BLOCKS))" if op == "broadcast" else ""
        tiles = "            more = _launch.tiles(again, plan.rows)\n" if sides else ""
        given = "given" if op == "broadcast" else "given[:again]"
        again = (
            f"        again = rows * {permille} // 1000\n        if again:\n{tiles}"
            f"            compiled(plan)({given}, written[:again]{sides})\n"
        )
        return [Edit(source, launch, f"{again}{launch}")]
    kernel = "with T.Kernel(T.ceildiv(rows, height), threads=height * lanes) as block:\n"
    tiles = "T.ceildiv(rows, height)"
    again = kernel.replace(f"({tiles},", f"({tiles} + {tiles} * {permille} // 1000,").replace("as block", "as place")
    return [Edit(source, kernel, f"{again}            block = place % {tiles}\n")]


def _list_slower_cuda(op: str, permille: int) -> list[Edit]:
    share = f"* {permille} / 1000"
    source = source_of(op, "cuda")
    if op == "matmul":  # a block begins with so many of its steps, and then forgets their sums
        steps = "    const long long steps = (k + DEPTH - 1) / DEPTH;\n"
        more = f"(steps * {permille} + blockIdx.x * 617ll % 1000) / 1000"  # parts of a step by the block
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


SLOWER = {
    "cuda": _list_slower_cuda,
    "cutile": _list_slower_cutile,
    "cutedsl": _list_slower_cutedsl,
    "tilelang": _list_slower_tilelang,
}
"""Compiler -> what makes an op take so many thousandths longer in the cases that are kept"""


def list_comments(op: str, backend: str) -> list[Edit]:
    """A line of comment in each file of the kernels."""
    if backend != "cuda":
        return [Edit(source_of(op, backend), "import torch\n", "import torch  # for tensors alone\n")]
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
    backend: str
    options: Sequence[str]
    fault: Fault | None = None
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
        if fault := self.fault:
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


def list_changes(kinds: Sequence[str], percent: Sequence[float], backend: str) -> list[Change]:
    """The changes of some kinds, those first that may be judged side by side."""
    changes, ops = [], KEPT[backend]
    if "faults" in kinds:
        for number, fault in enumerate(fault for fault in FAULTS if fault.backend == backend):
            accuracy = ["--suite", "accuracy"]
            changes.append(Change("faults", f"faults-{number}", {fault.op: fault.edits}, backend, accuracy, fault))
    timed = ["--suite", "performance"]
    if "comments" in kinds:
        edits = {op: list_comments(op, backend) for op in ops}
        changes.append(Change("comments", "comments", edits, backend, timed))
    if "slower" in kinds:
        for many in percent:
            edits = {op: SLOWER[backend](op, round(10 * many)) for op in ops}
            changes.append(Change("slower", f"slower-{many:g}", edits, backend, timed))
    if "same" in kinds:
        edits, options = {op: list_comments(op, backend) for op in ops}, [*timed, "--duel", "all"]
        changes += [Change("same", f"same-{number}", edits, backend, options) for number in range(TIMES_SAME)]
    return changes


def make_project(project: Path, backend: str) -> None:
    """A repository with this compiler's ops on the branch main, which times the kept cases alone."""
    kernels = project / "kernels"
    shutil.copytree(ROOT / "kernels", kernels, ignore=shutil.ignore_patterns("__pycache__", "_chains", "tuned"))
    for folder in kernels.iterdir():
        if folder.is_dir() and folder.name not in {*KEPT[backend], "_devices"}:
            shutil.rmtree(folder)
    for op, kept in KEPT[backend].items():
        for other in {"cuda", "cutedsl", "cutile", "tilelang"} - {backend}:
            (kernels / op / f"{op}_{other}.py").unlink(missing_ok=True)
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
    ops = [f"{op}@{change.backend}" for op in change.edits]
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
    env = os.environ | ({"TMPDIR": str(home / "tmp")} if change.kind == "faults" else {})
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


def report(change: Change) -> bool:
    """Print what became of a change. Returns whether all of it is as expected."""
    told = change.tell()
    print(f"{change.name} ({change.seconds:.0f} s)", flush=True)
    for text, is_expected in told:
        print(f"  {'ok ' if is_expected else 'ODD'} {text}", flush=True)
    return all(is_expected for _, is_expected in told)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"some of {', '.join(KINDS)}")
    parser.add_argument("--backend", default="cuda", choices=KEPT, help="what kernels are written in")
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
        make_project(folder / "project", options.backend)
        changes = list_changes(options.kinds or KINDS, options.percent, options.backend)
        beside = [change for change in changes if change.kind == "faults"]
        with ThreadPoolExecutor(options.jobs) as pool:
            running = {pool.submit(judge, change, folder, options.out): change for change in beside}
            for done in as_completed(running):
                done.result()
                expected &= report(running[done])
        for change in changes:
            if change.kind != "faults":
                judge(change, folder, options.out)
                expected &= report(change)
    return 0 if expected else 1


if __name__ == "__main__":
    sys.exit(main())
