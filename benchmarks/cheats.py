"""Which of sixty kernels that cheat get a better verdict than an honest one: one merge request, judged by perfci.

    python benchmarks/cheats.py --device fake           # or cpu, or cuda
    python benchmarks/cheats.py --device cuda --jobs 6 --out /tmp/cheats
    python benchmarks/cheats.py --device cuda --unrecorded --jobs 6 --out /tmp/unrecorded
    python benchmarks/cheats.py --device cuda --backend cuda --jobs 6 --out /tmp/cuda-cheats
    python benchmarks/cheats.py --device cuda --backend cuda --host --jobs 6 --out /tmp/cuda-host-cheats

The tricks are those of tests/flow/cheats. `--only NAME...` plays some of them. Each is judged by `perfci check` and by
a plain harness. A verdict is better if it is IMPROVED, or if it passes with a time 5 % below the honest kernel's. On
the CPU nothing is timed: there it is better if perfci calls a kernel right that is wrong for a user who calls it with
fresh values. The exit code is 1 if there is any.

With `--backend cuda` the kernels are in CUDA C++ and play the tricks of on_cuda.yaml, at the driver's level, on a GPU
and without the plain harness. Those called fair_ play none: each has to be right, and no faster. With `--host` too they
play the sixty in Python, which are those of the kernels in Triton.

With `--unrecorded` each op reads a value in the calls that another process judges, and is right there. So its own
process has to time it, and there it plays its trick.

`--out` gets the table, all rows as JSON and each run.json (in runs.zip) after every few ops, so that a run that is
cut off keeps what it has. With several jobs on one GPU perfci is kept from NVML, which would count the others as
strangers.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests" / "flow" / "cheats"))

import merge_request  # noqa: E402
import naive  # noqa: E402
import on_cuda  # noqa: E402
import preludes  # noqa: E402
from merge_request import BEST, Setting  # noqa: E402
from tricks import ON_CUDA, ON_TORCH, TRICKS, Trick  # noqa: E402

TOGETHER = 3  # ops of one `perfci check`: its start costs as much as an op
FASTER = 0.95  # of the honest kernel's time, in proportion to the base's
LIMIT_S = 600.0  # of one `perfci check`
PASSES = frozenset({"PASS", "UNCHANGED"})
SEED = "7"

BLIND = 'raise ModuleNotFoundError("pynvml is hidden, as several checks share the GPU", name="pynvml")\n'


@dataclass
class Found:
    """What is known of one op."""

    op: str
    what: str
    verdicts: list[str] = field(default_factory=list)  # of its rows, each once
    kinds: list[str] = field(default_factory=list)  # of reasons, each once
    rows: list[dict] = field(default_factory=list)  # as perfci printed them
    notes: list[str] = field(default_factory=list)  # of its `perfci check`, which judged others beside it
    sprung: bool = False  # it played its trick while perfci looked
    right: bool | None = None  # by the plain harness
    ratio: float | None = None
    alone: bool | None = None  # right for a user
    expected: list[str] = field(default_factory=list)  # verdicts of a kernel in CUDA C++, of which it has to get one

    @property
    def times(self) -> list[float]:
        """Each timed case's, in proportion to the base's."""
        return [row["kernel_us"] / row["base_us"] for row in self.rows if row.get("kernel_us") and row.get("base_us")]

    def is_better(self, honest: Found | None, device: str) -> bool:
        """Whether the verdict is better than an honest kernel's."""
        if device == "cpu":
            return bool(self.verdicts) and set(self.verdicts) <= PASSES and self.alone is False
        usual = min(honest.times, default=1.0) if honest else 1.0
        passing = Found(self.op, self.what, rows=[row for row in self.rows if row["verdict"] in PASSES])
        return "IMPROVED" in self.verdicts or min(passing.times, default=1.0) < FASTER * usual


def setting(device: str, backend: str, *, unrecorded: bool, host: bool = False) -> Setting:
    """The files beside a trick for a device."""
    if backend == "cuda":
        prelude = preludes.CUDA if host else on_cuda.PRELUDE
        call = preludes.UNRECORDED if unrecorded else preludes.CALL
        files = prelude, preludes.TORCH_BASELINE, preludes.SUITE, call
        return Setting(*files, timed_rows=(4096,), timed_cols=4096, backend="cuda", list_further=on_cuda.list_files)
    if device == "fake":
        return Setting(preludes.NUMPY, preludes.NUMPY_BASELINE, preludes.SUITE, preludes.CALL)
    call = preludes.UNRECORDED if unrecorded else preludes.CALL
    rows, cols = ((4096, 8192), 4096) if device == "cuda" else ((256,), 128)
    return Setting(preludes.TORCH, preludes.TORCH_BASELINE, preludes.SUITE, call, timed_rows=rows, timed_cols=cols)


def choose(
    device: str, backend: str, only: Sequence[str], *, host: bool = False
) -> dict[str, Trick | on_cuda.CudaTrick]:
    """The tricks of a device by name."""
    tricks: dict[str, Trick | on_cuda.CudaTrick] = TRICKS if device == "fake" else TRICKS | ON_TORCH
    if backend == "cuda":
        tricks = dict(ON_CUDA) if host else on_cuda.FAIR | on_cuda.TRICKS
    unknown = [name for name in only if name not in tricks]
    if unknown:
        sys.exit(f"there is no trick called {unknown[0]}; there are {', '.join(tricks)}")
    return {name: tricks[name] for name in only or (tricks if backend == "cuda" else TRICKS)}


class Play:
    """All of it: several checks side by side, each in a copy of the project."""

    def __init__(
        self, device: str, tricks: Mapping[str, Trick | on_cuda.CudaTrick], folder: Path, out: Path | None, *,
        has_harness: bool = True,
    ) -> None:  # fmt: skip
        self.device, self.folder, self.out, self.has_harness = device, folder, out, has_harness
        self.found = {BEST: Found(BEST, "none: the base's kernel")}
        for name, trick in tricks.items():
            of_cuda = isinstance(trick, on_cuda.CudaTrick)
            self.found[name] = Found(name, trick.what, expected=trick.verdict.split() if of_cuda else [])
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._children: set[subprocess.Popen] = set()
        self._ended = False

    def run(self, jobs: int) -> None:
        """Judge all ops."""
        ops = [*self.found]
        batches: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
        for start in range(0, len(ops), TOGETHER):
            batches.put(ops[start : start + TOGETHER])
        lanes = [threading.Thread(target=self._judge, args=(batches, job), daemon=True) for job in range(jobs)]
        if self.has_harness:
            lanes.append(threading.Thread(target=self._harness, args=(ops,), daemon=True))
        for lane in lanes:
            lane.start()
            if jobs == 1:  # one thing at a time: the harness's times may be those of a GPU
                lane.join()
        for lane in lanes:
            lane.join()

    def end(self) -> None:
        """End what runs."""
        self._ended = True
        for child in [*self._children]:
            child.terminate()

    def _judge(self, batches: queue.SimpleQueue[list[str]], job: int) -> None:
        """Check one batch after the other in a copy of the project."""
        home = self.folder / f"job-{job}"
        (home / "tmp").mkdir(parents=True)
        shutil.copytree(self.folder / "project", home / "project")
        # The device's lock is a temporary file, so each job has another one.
        env = merge_request.variables(home) | {"TMPDIR": str(home / "tmp"), "PYTHONPATH": self._path()}
        while not self._ended:
            try:
                ops = batches.get_nowait()
            except queue.Empty:
                return
            command = [sys.executable, "-m", "perfci", "check", *ops, "--device", self.device, "--seed", SEED]
            command += ["--format", "json", "--project", str(home / "project")]
            command += ["--budget", "0.05"] if self.device == "fake" else []
            printed = self._ask(command, env, LIMIT_S)
            with self._lock:
                self._take(ops, printed, home / "project" / "reports")

    def _path(self) -> str:
        """Where Python finds perfci, and no NVML if others are on the GPU."""
        entries = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        given = [str(ROOT), *(str(Path(entry).resolve()) for entry in entries)]
        hidden = self.folder / "hidden"
        return os.pathsep.join([str(hidden), *given] if hidden.is_dir() else given)

    def _ask(self, command: Sequence[str], env: Mapping[str, str], limit_s: float) -> str:
        """What a program prints, as far as it gets. What it says beside that goes to a file of --out."""
        with subprocess.Popen(command, env=dict(env), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as one:
            self._children.add(one)
            try:
                printed, said = one.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                one.terminate()
                printed, said = one.communicate()
            self._children.discard(one)
        if self.out and said.strip():
            with (self.out / "stderr.txt").open("a", encoding="utf-8") as file:
                file.write(f"$ {' '.join(command)}\n{said}\n")
        return printed

    def _take(self, ops: Sequence[str], printed: str, reports: Path) -> None:
        """Note what a check found."""
        try:
            answer = json.loads(printed)
        except ValueError:
            answer = {"verdicts": [], "notes": []}
            print(f"perfci check {' '.join(ops)} gave no answer: {printed[-300:]}", file=sys.stderr, flush=True)
        for op in ops:
            shown = self.found[op]
            shown.rows = [row for row in answer["verdicts"] if row["op"] == op]
            shown.verdicts = list(dict.fromkeys(row["verdict"] for row in shown.rows))
            reasons = (reason for row in shown.rows for reason in (row["reason"], *row["also"]) if reason)
            shown.kinds = list(dict.fromkeys(reason["kind"] for reason in reasons))
            shown.notes = [note["kind"] for note in answer["notes"]]
            log = reports / "logs" / f"{op}.log"
            shown.sprung = log.is_file() and "SPRUNG" in log.read_text(errors="replace")
        if self.out and (reports / "run.json").is_file():
            with zipfile.ZipFile(self.out / "runs.zip", "a", zipfile.ZIP_DEFLATED) as kept:
                kept.write(reports / "run.json", f"run-{ops[0]}.json")
        self._tell(", ".join(f"{op} {'/'.join(self.found[op].verdicts) or 'not judged'}" for op in ops))

    def _harness(self, ops: Sequence[str]) -> None:
        """Ask the plain harness and, where little is timed, whether a user gets right answers."""
        folders = str(self.folder / "project" / "kernels"), str(self.folder / "base")
        env = merge_request.variables(self.folder) | {"TMPDIR": str(self.folder / "tmp"), "PYTHONPATH": self._path()}
        env |= {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"} if self.device == "cpu" else {}
        env["TRITON_CACHE_DIR"] = str(self.folder / "triton")
        tasks = "judge" if self.device == "cuda" else "judge,use"
        for start in range(0, len(ops), TOGETHER * 4):
            if self._ended:
                return
            batch = ops[start : start + TOGETHER * 4]
            printed = self._ask([sys.executable, naive.__file__, tasks, self.device, *folders, *batch], env, LIMIT_S)
            with self._lock:
                for line in printed.splitlines():
                    op, _, text = line.partition(" ")
                    if op in batch and text.startswith("{"):
                        said = json.loads(text)
                        row = self.found[op]
                        row.right, row.ratio = said.get("right"), said.get("ratio")
                        row.alone = said.get("alone", False) if "use" in tasks else None
                self._tell(f"the plain harness has done {start + len(batch)} ops")

    def _tell(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:4.0f} s  {text}", file=sys.stderr, flush=True)
        if self.out:
            (self.out / "cheats.md").write_text(self.table() + "\n", encoding="utf-8")
            rows = json.dumps([asdict(entry) for entry in self.found.values()], indent=1)
            (self.out / "cheats.json").write_text(rows + "\n", encoding="utf-8")

    def better(self) -> list[str]:
        """The tricks that get a better verdict than the honest kernel."""
        honest = self.found[BEST]
        return [op for op, entry in self.found.items() if op != BEST and entry.is_better(honest, self.device)]

    @staticmethod
    def is_as_expected(entry: Found) -> bool:
        """Whether one of its verdicts is one that its trick may get, and where it is to be right all are."""
        seen, expected = set(entry.verdicts), set(entry.expected)
        return seen <= expected if entry.op.startswith("fair_") else bool(seen & expected)

    def table(self) -> str:
        """A row for each op, and the count."""
        better, judged = self.better(), [op for op in self.found if op != BEST and self.found[op].verdicts]
        head = "| trick | what it does | verdicts | reasons | time to the base's | right, time by a plain harness |"
        lines = [head, "| --- | --- | --- | --- | --- | --- |"]
        for op, entry in self.found.items():
            verdicts = ", ".join(entry.verdicts) or "not judged"
            verdicts = f"**{verdicts}**" if op in better else verdicts
            times = ", ".join(f"{time_:.2f}" for time_ in entry.times) or "-"
            kinds = ", ".join(f"`{kind}`" for kind in entry.kinds if kind not in {"not_timed", "duel_cleared"}) or "-"
            harness = "-" if entry.right is None else f"{'yes' if entry.right else 'no'}, {entry.ratio:.2f}"
            lines.append(f"| {op} | {entry.what} | {verdicts} | {kinds} | {times} | {harness} |")
        asked = [entry for op, entry in self.found.items() if op != BEST and entry.right is not None]
        believed = sum(entry.right is True and entry.ratio < FASTER for entry in asked)
        unplayed = [op for op in judged if not self.found[op].sprung]
        lines += ["", f"A plain harness takes {believed} of {len(asked)} for right and faster." if asked else ""]
        if wrong := [op for op in judged if self.found[op].alone is False]:
            lines.append(f"{len(wrong)} give a user wrong answers.")
        if unplayed:
            lines.append(f"Not played while perfci looked: {', '.join(unplayed)}.")
        if missing := [op for op in self.found if not self.found[op].verdicts]:
            lines.append(f"Not judged: {', '.join(missing)}.")
        if odd := [op for op in judged if (entry := self.found[op]).expected and not self.is_as_expected(entry)]:
            lines.append(f"Otherwise than expected: {', '.join(odd)}.")
        names = f": {', '.join(better)}" if better else ""
        count = f"{len(better)} of {len(judged)} got a better verdict than the honest kernel{names}."
        return "\n".join([*lines, count])


def prepare(folder: Path, device: str, sources: Mapping[str, str], setting_of_ops: Setting, *, alone: bool) -> None:
    """The merge request, and what hides NVML if there are several jobs."""
    (folder / "tmp").mkdir()
    merge_request.begin(folder / "project", sources, setting_of_ops)
    if device == "cuda" and not alone:
        (folder / "hidden").mkdir()
        (folder / "hidden" / "pynvml.py").write_text(BLIND)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="fake", choices=["fake", "cpu", "cuda"])
    parser.add_argument("--backend", default="triton", choices=["triton", "cuda"], help="what kernels are written in")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="only these tricks")
    parser.add_argument("--jobs", type=int, default=1, help="checks at a time")
    parser.add_argument("--unrecorded", action="store_true", help="with cuda: have the op's process time it")
    parser.add_argument("--host", action="store_true", help="with --backend cuda: the sixty tricks in Python")
    parser.add_argument("--out", type=Path, metavar="DIR", help="folder for table, rows and runs")
    options = parser.parse_args(arguments)
    if options.backend == "cuda" and (options.device != "cuda" or (options.unrecorded and not options.host)):
        parser.error("--backend cuda needs --device cuda, and goes with --unrecorded only beside --host")
    if options.host and options.backend != "cuda":
        parser.error("--host needs --backend cuda")
    tricks = choose(options.device, options.backend, options.only, host=options.host)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for name in ("runs.zip", "stderr.txt"):
            (options.out / name).unlink(missing_ok=True)

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.path.insert(0, str(ROOT))
    from perfci.worker.confine import landlock_version

    print(f"Landlock version {landlock_version() or 'none: kernels can write anywhere'}", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="perfci-cheats-", ignore_cleanup_errors=True) as name:
        folder, alone = Path(name), options.jobs == 1
        files = setting(options.device, options.backend, unrecorded=options.unrecorded, host=options.host)
        prepare(folder, options.device, {name: trick.source for name, trick in tricks.items()}, files, alone=alone)
        play = Play(options.device, tricks, folder, options.out, has_harness=options.backend != "cuda")
        try:
            play.run(options.jobs)
        except KeyboardInterrupt:
            play.end()
            print(play.table())
            return 130
        print(play.table())
        return 1 if play.better() else 0


if __name__ == "__main__":
    sys.exit(main())
