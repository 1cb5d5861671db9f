r"""How long perfci's steps take over large runs and projects, without device and torch.

    python benchmarks/speed.py [STEP [SIZES...]]

Steps, with their sizes (by default):

start      `perfci --help`, and the imports that take longest. Sizes: starts (15). Aim: 0.3 s
compare    comparing with baselines and judging, cold and warm. Ops, cases (200 50). Aim: 5 s
plan       `perfci ci plan` of a change of a document, and of an op. Ops, cases (500 20). Aim: 5 s
merge      joining duelled shards as `perfci ci merge` does, and judging. Shards, cases (100 100). Aim: 5 s
report     Markdown and pictures: screened, duelled, with 100 accepted runs an op. Ops, cases (10 50). Aim: 10 s
page       the same as one page of HTML. Ops, cases (10 50). Aim: 2 s and 5 MB
site       the site of made-up histories on three devices. Ops, runs (40 200), FOLDER to keep it. Aim: 0.2 s a page
store      copying to Parquet, and to PostgreSQL if there is one here, and a trend. Ops, runs, cases (50 1000 20).
           Aims: copied in 120 s, any trend in a second

Without a step, all but store, which takes minutes. On a machine that others use the CPU time is the figure to look at.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import platform
import random
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from perfci import report, store
from perfci.cli.demo import write_project
from perfci.core import settings
from perfci.core.codec import encode
from perfci.core.model.baseline import BaselineBlock, BaselineCase
from perfci.core.model.basics import Suite
from perfci.core.model.decision import Judgements
from perfci.core.model.measured import OpRun
from perfci.core.model.run import FORMAT, Plan, PlannedOp, Run, Shard
from perfci.extensions.history import site
from perfci.extensions.history.histories import PastSections, read_histories
from perfci.extensions.shards.joined import merge_shards
from perfci.extensions.shards.plans import ShardedOp, ShardPlan, read_plan, write_plan
from perfci.judge import judge
from perfci.runs.rules import hash_rules
from perfci.store.launches import append_launches
from perfci.thresholds.limits import Thresholds
from tests import example_runs, site_histories

T = TypeVar("T")

LAUNCHES = 30  # of each arm in a block


def main() -> None:
    if {"-h", "--help"} & {*sys.argv[1:]}:
        print(__doc__)
        return
    chosen, sizes = sys.argv[1:2] or [name for name in STEPS if name != "store"], sys.argv[2:]
    if unknown := set(chosen) - STEPS.keys():
        sys.exit(f"There is no step {', '.join(unknown)}: name one of {', '.join(STEPS)}.")
    print(machine())
    for name in chosen:
        print(f"\n{name}")
        STEPS[name](*(int(size) if size.isdigit() else size for size in sizes))


def machine() -> str:
    """What the figures were taken on, in words."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text(encoding="utf-8").splitlines() if listing.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    place = f"{platform.system()} {platform.machine()}, {next(names, 'unknown processor')}"
    return f"Python {platform.python_version()}, {place}, {cores} cores{load}"


def git(root: Path, *arguments: str) -> None:
    """Run git in a repository, as no one in particular."""
    person = ["-c", "user.name=perfci", "-c", "user.email=perfci@localhost"]
    subprocess.run(["git", "-C", str(root), *person, *arguments], check=True, capture_output=True)


def timed(work: Callable[[], T]) -> tuple[T, float, str]:
    """What the work returns, its wall seconds, and in words wall and CPU seconds, those of its processes included."""
    wall, cpu = time.perf_counter(), sum(os.times()[:4])
    made = work()
    wall, cpu = time.perf_counter() - wall, sum(os.times()[:4]) - cpu
    return made, wall, f"{wall:.2f} s ({cpu:.2f} s of CPU)"


# --- start: the command line ------------------------------------------------------------------------------------------


def time_start(starts: int = 15) -> None:
    """Warm, and cold: the files that a start reads are dropped from the page cache, unless another process has them."""
    command = [sys.executable, "-m", "perfci", "--help"]
    code = (
        "import atexit, sys; sys.argv = ['perfci', '--help']\n"
        "atexit.register(lambda: print(*(str(getattr(module, name, None)) for module in [*sys.modules.values()]\n"
        "    for name in ('__cached__', '__file__')), sep='\\n', file=sys.stderr))\n"
        "import runpy; runpy.run_module('perfci', run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    files = sorted({line for line in done.stderr.splitlines() if Path(line).is_file()})
    for name, dropped in (("warm", ()), ("cold", files)):
        seconds = []
        for _ in range(starts):
            for file in dropped:
                _drop(file)
            seconds.append(timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))[1])
        print(f"{name}: {min(seconds):.2f} s, median {statistics.median(seconds):.2f} s of {starts} starts")
    done = subprocess.run([command[0], "-X", "importtime", *command[1:]], capture_output=True, text=True, check=True)
    rows = [line.split("|") for line in done.stderr.splitlines() if line.count("|") == 2 and "package" not in line]
    rows.sort(key=lambda row: -int(row[1]))
    print(f"{len(files)} files read; the slowest imports, with all that they import:")
    print(*(f"  {int(row[1]) / 1000:6.1f} ms {row[2].rstrip()}" for row in rows[:12]), sep="\n")


def _drop(file: str) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)


# --- compare: baselines, judging --------------------------------------------------------------------------------------


def time_comparing(ops: int = 200, cases: int = 50) -> None:
    """Blocks of two kernels a launch, so that spans are compared too, against 30 stored blocks a case."""
    rng = np.random.default_rng(0)
    names = [f"rows={number}" for number in range(cases)]
    runs = tuple(
        OpRun(f"op{number}", performance=tuple(_measure(name, number) for name in names)) for number in range(ops)
    )
    planned = tuple(PlannedOp(op.op, performance=tuple(names)) for op in runs)
    run = example_runs.run(runs, plan=Plan(planned, 0, 1.0, "cuda", (Suite.PERFORMANCE,)))
    baselines = {op.op: replace(example_runs.stored(op.op, {}), cases=_store(names, rng)) for op in runs}
    for name in ("cold", "warm", "warm"):  # tables of the tests' distributions are made once a process
        judged, _, took = timed(lambda: judge(run, baselines, Thresholds()))
        print(f"{name}: {len(judged.rows)} verdicts in {took}")


def _measure(name: str, seed: int) -> Any:
    case = example_runs.performance_case(name, 20.0, seed=seed)
    blocks = [
        replace(block, arms={arm: replace(one, activities=2) for arm, one in block.arms.items()})
        for block in case.blocks
    ]
    return replace(case, blocks=tuple(blocks))


def _store(names: Sequence[str], rng: np.random.Generator) -> tuple[BaselineCase, ...]:
    def write(times: np.ndarray) -> tuple[BaselineBlock, ...]:
        return tuple(
            BaselineBlock(f"run{at % 3}", kernel, reference, math.log(kernel / reference), kernel + 3.0, 2)
            for at, (kernel, reference) in enumerate(times.tolist())
        )

    return tuple(BaselineCase(name, write(rng.lognormal(3, 0.01, (30, 2)))) for name in names)


# --- plan: a pipeline's first job -------------------------------------------------------------------------------------


def time_planning(ops: int = 500, cases: int = 20) -> None:
    """Without a changed op none is imported. With one all are: the cases duelled as a control are drawn from them."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "project"
        _write_ops(root, ops, cases)
        print(f"nothing changed: {_plan(root)}")
        kernel = root / "kernels" / "op_0" / "op_0_triton.py"
        kernel.write_text(kernel.read_text().replace("US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 328.0"))
        print(f"one op changed: {_plan(root)}")


def _write_ops(root: Path, ops: int, cases: int) -> None:
    """So many ops of four files each for the fake device, on a branch that differs from main in a document."""
    write_project(root)
    files = {path.name: path.read_text() for path in (root / "kernels" / "scale").glob("*.py")}
    rows = str([128 * number for number in range(1, cases + 1)])
    files["scale_performance.py"] = files["scale_performance.py"].replace("[256, 512]", rows)
    shutil.rmtree(root / "kernels")
    for number in range(ops):
        folder = root / "kernels" / f"op_{number}"
        folder.mkdir(parents=True)
        for name, text in files.items():
            (folder / name.replace("scale", folder.name)).write_text(text.replace("scale", folder.name))
    git(root, "init", "-q", "-b", "main")
    (root / ".gitignore").write_text("reports/\nplan.json\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "first")
    git(root, "checkout", "-q", "-b", "topic")
    (root / "README.md").write_text("Words.\n")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "second")


def _plan(root: Path) -> str:
    command = ["ci", "plan", "--device", "fake", "--shards", "16", "--project", str(root), "--out", "plan.json"]
    ask = functools.partial(subprocess.run, check=True, capture_output=True, text=True, cwd=root)
    done, _, took = timed(lambda: ask([sys.executable, "-m", "perfci", *command]))
    told = next(line for line in done.stdout.splitlines() if "ops are measured" in line)
    return f"{took}; {told.partition(';')[0]}"


# --- merge: a pipeline's last job -------------------------------------------------------------------------------------


def time_merging(shards: int = 100, cases: int = 100) -> None:
    """An op a shard, with launches: reading them, joining, writing, judging."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        (root / "kernels").mkdir()
        project = settings.load(root)
        whole, _ = example_runs.large_duelled(shards, cases)
        plan = ShardPlan(
            perfci=whole.perfci, created=whole.created, commit=whole.environment.commit, rules=hash_rules(project),
            alpha=0.01, shards=shards, timer="auto",
            plan=replace(whole.plan, skip_unchanged=True), family=shards * cases,
            ops=tuple(ShardedOp(op.op, number) for number, op in enumerate(whole.ops, start=1)),
        )  # fmt: skip
        path = write_plan(plan, root / "plan.json")
        folders = [_write_shard(whole, plan, path, number, project.reports) for number in range(1, shards + 1)]
        size = sum(file.stat().st_size for folder in folders for file in folder.iterdir())

        def merge() -> Judgements:
            stored, signature = read_plan(path)
            runs = [(store.read_run(folder), folder) for folder in folders]
            return merge_shards(project, stored, signature, runs, "perfci ci merge")[1]

        judged, _, took = timed(merge)
    assert len(judged.rows) == shards * cases
    print(f"{shards} shards, {size / 1e6:.1f} MB: {len(judged.rows)} verdicts in {took}")


def _write_shard(whole: Run, plan: ShardPlan, path: Path, number: int, reports: Path) -> Path:
    """A shard's run and launches, as it would have stored them."""
    folder, op, signature = reports / "shards" / str(number), whole.ops[number - 1], read_plan(path)[1]
    planned = replace(plan.plan, ops=(plan.plan.ops[number - 1],), shard_family=plan.family)
    shard = Shard(signature, number, plan.shards, done=True)
    run = replace(whole, id=f"run-{number}", plan=planned, ops=(op,), shard=shard)
    store.write_run(run, folder)
    write_launches(run, folder)
    return folder


def write_launches(run: Run, folder: Path) -> int:
    """Writes launches around every block's medians. Returns their number."""
    rng, count = random.Random(1), 0
    for op in run.ops:
        for case in op.performance:
            for block in case.blocks:
                arms = {
                    arm: [one.time.median_us * (1 + rng.gauss(0, 0.01)) for _ in range(LAUNCHES)]
                    for arm, one in block.arms.items()
                }
                append_launches(folder, op.op, case.case, block.process, block.index, arms)
                count += LAUNCHES * len(arms)
    return count


# --- report and page --------------------------------------------------------------------------------------------------


def time_report(ops: int = 10, cases: int = 50, formats: Sequence[str] = ("md",)) -> None:
    """A run judged against baselines, and one of a merge request, without and with 100 accepted runs of each op."""
    _render("warm-up", *example_runs.small(), formats)  # matplotlib writes its cache of fonts
    _render("screened", *example_runs.large(ops, cases), formats)
    run, judgements = example_runs.large_duelled(ops, cases)
    _render("duelled", run, judgements, formats)
    _render("duelled, with histories", run, judgements, formats, _read_histories(run))


def _render(
    name: str, run: Run, judgements: Judgements, formats: Sequence[str], histories: Mapping[str, Any] | None = None
) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        launches = write_launches(run, folder)
        extras = [PastSections(run, histories or {})]
        write = functools.partial(report.write, run, judgements, folder, folder, extras=extras, formats=list(formats))
        path, _, took = timed(write)
        page, pictures = folder / report.PAGE, [file.stat().st_size for file in folder.glob("*.png")]
        size = (page if page.exists() else path).stat().st_size
    count = sum(bool(case.blocks) for op in run.ops for case in op.performance)
    print(
        f"{name}: {count} cases, {launches} launches: {took}; {size / 1e6:.2f} MB, {len(pictures)} pictures beside it"
    )


def _read_histories(run: Run, count: int = 100) -> Mapping[str, Any]:
    """The accepted runs of the run's cases, read like the pipeline does."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        (root / "kernels").mkdir()
        folder = root / "baselines" / run.environment.device.key
        folder.mkdir(parents=True)
        for op in run.ops:
            lines = "".join(json.dumps(_accept(run, op, number, count)) + "\n" for number in range(count))
            (folder / f"{op.op}.history.jsonl").write_text(lines, encoding="utf-8")
        project = settings.load(root)
        histories, _, took = timed(lambda: dict(read_histories(run, project)))
        print(f"histories: {len(run.ops)} of {count} runs read and looked at: {took}")
        return histories


def _accept(run: Run, op: OpRun, number: int, count: int) -> dict[str, Any]:
    """An accepted run of an op: a new driver in the middle, and one of its cases creeps."""
    rng = random.Random(f"{op.op} {number}")
    where = json.loads(encode(run.environment))
    where["device"]["driver"] = "590.12" if number >= count // 2 else "580.65"
    where["commit"] = f"{rng.getrandbits(160):040x}"
    cases = []
    for place, case in enumerate(op.performance):
        slower = 1 + 0.001 * number * (place == 7)
        medians = {arm: case.blocks[0].arms[arm].time.median_us for arm in ("kernel", "reference")}
        arms = {f"{arm}_us": us * rng.gauss(slower, 0.003) for arm, us in medians.items()}
        spreads = {arm: {"median_us": us, "p25_us": 0.997 * us, "p75_us": 1.003 * us} for arm, us in arms.items()}
        shift = math.log(arms["kernel_us"] / arms["reference_us"])
        cases.append({"case": case.case, "blocks": 8, "shift": shift, "cache": case.cache, **spreads})
    created = f"{datetime(2025, 9, 20, tzinfo=UTC) + timedelta(days=number):%Y-%m-%dT%H:%M:%SZ}"
    return {"run": f"night-{number}", "created": created, "environment": where, "cases": cases, "format": FORMAT}


# --- the site ---------------------------------------------------------------------------------------------------------

DEVICES = ("ascend-910b", "nvidia-h100", "nvidia-h200")
CHANGES = (1.0, 1.0, 1.0, 1.0, 1.025, 1.06, 1.17, 0.97, 0.91)  # of the time, one drawn for an op and device


def time_site(ops: int = 40, runs: int = 200, folder: str = "", cases: int = 8) -> None:
    """In some ops a kernel became slower or faster in the middle of their histories."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(folder or place).resolve()
        root.mkdir(parents=True, exist_ok=True)
        (root / "pyproject.toml").write_text('[project]\nname = "kernels"\n')
        later = runs * 7 // 10
        for device in DEVICES:
            for op, runs_of in site_histories.many(ops, runs, cases):
                rng = random.Random(f"{device} {op}")
                change, places = rng.choice(CHANGES), rng.sample(range(cases), rng.choice([1, 3, cases]))
                changed = [_slow_down(run, change, places) for run in runs_of[later:]]
                site_histories.project(root, {(device, op): [*runs_of[:later], *changed]})
        build = functools.partial(site.build, root / "baselines", root, root / "public")
        built, _, took = timed(build)
        sizes = [path.stat().st_size for path in (root / "public").rglob("*.html")]
    print(f"{len(built.pages)} pages of {runs} runs in {took}; {_most_memory()}")
    print(f"{sum(sizes) / 1e6:.1f} MB, the largest page {max(sizes) / 1e6:.2f} MB")


def _slow_down(run: Any, change: float, places: Sequence[int]) -> Any:
    """The run with some cases' times multiplied."""
    cases = list(run.cases)
    for place in places:
        case = cases[place]
        spread = replace(case.kernel_us, median_us=case.kernel_us.median_us * change)
        cases[place] = replace(case, kernel_us=spread, shift=case.shift + math.log(change))
    return replace(run, cases=tuple(cases))


def time_store(ops: int = 50, runs: int = 1000, cases: int = 20) -> None:
    """`again`: a copy when nothing is new. A trend: all cases of an op over all runs."""
    from perfci.extensions.history.database import (
        import_project,
        open_store,  # which needs the extra `store`
    )
    from tests import postgres

    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as closing:
        root = Path(place).resolve()
        for op, history in site_histories.many(ops, runs, cases):
            site_histories.project(root, {(DEVICES[2], op): history})
        project = settings.load(root)
        print(f"{runs} runs of {ops * cases} cases in {ops} ops", flush=True)
        if server := postgres.start():
            closing.callback(postgres.end, server)
        for url in (f"parquet:{root}/store", *([server.url()] if server else [])):
            with open_store(url) as store:
                build = functools.partial(site.build, project.baselines, root, root / url[:7], store)
                for what, step in {
                    "copied": lambda store=store: import_project(store, project, (), 0),
                    "again": lambda store=store: import_project(store, project, (), 0),
                    "a trend": lambda store=store: store.read_history(DEVICES[2], op),
                    "site": build,
                }.items():
                    print(f"{url.partition(':')[0]}: {what} in {timed(step)[2]}", flush=True)
        files = sum(path.stat().st_size for path in (root / "store").rglob("*.parquet"))
    print(f"{files / 1e6:.0f} MB of Parquet; {_most_memory()}")


def _most_memory() -> str:
    return f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB"


STEPS: dict[str, Callable[..., None]] = {
    "start": time_start, "compare": time_comparing, "plan": time_planning, "merge": time_merging,
    "report": time_report, "page": functools.partial(time_report, formats=("html",)), "site": time_site,
    "store": time_store,
}  # fmt: skip


if __name__ == "__main__":
    main()
