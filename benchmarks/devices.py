"""Several devices side by side: how much sooner a check ends, and whether its times become less sure.

python benchmarks/devices.py speed [DEVICES...]
    on the fake device, with launches that take real time here: 1, 2 and 4 devices by default

python benchmarks/devices.py noise --devices 0,1 [--project DIR] [--rounds 3] [--budget S]
    on real devices: every op against itself, on each device alone and on all at once, by turns. Printed are, case by
    case, the spread of the blocks' shift between two equal arms and how far the processes' medians lie from none, with
    the times of the host: it is the hosts that compete, the devices share nothing but heat.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from speed import machine

from perfci import store
from perfci.cli.demo import write_project
from perfci.core.model import Block, Run

WALL_SHARE = 40.0
"""Times what fake launches claim that they really take, so that some 10 s of a check are the device's."""

COPIES = 4
"""Of each of the demo's three ops: so that several devices can share them evenly."""

DUEL = "kernel/base"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    speed = what.add_parser("speed")
    speed.add_argument("counts", nargs="*", type=int, default=[1, 2, 4])
    noise = what.add_parser("noise")
    noise.add_argument("--devices", default="0,1")
    noise.add_argument("--device", default="auto")
    noise.add_argument("--project", type=Path, default=Path())
    noise.add_argument("--rounds", type=int, default=3)
    noise.add_argument("--budget", type=float, default=1.0)
    wanted = parser.parse_args()
    if wanted.what == "speed":
        print_speed(wanted.counts)
    else:
        fixed = ["--device", wanted.device, "--budget", str(wanted.budget), "--project", str(wanted.project.resolve())]
        print_noise(wanted.devices.split(","), wanted.project.resolve(), wanted.rounds, fixed)


def perfci(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs the command and passes on its progress messages."""
    return subprocess.run([sys.executable, "-m", "perfci", *arguments], stdout=subprocess.PIPE, text=True, check=False)


# --- how much sooner --------------------------------------------------------------------------------------------------


def print_speed(counts: list[int]) -> None:
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        project = fake_project(Path(folder) / "project", max(counts))
        alone = None
        for count in counts:
            names = ",".join(map(str, range(count)))
            began = time.perf_counter()
            done = perfci("check", "--device", "fake", "--seed", "7", "--devices", names, "--project", str(project))
            took = time.perf_counter() - began
            if done.returncode != 0:
                sys.exit(done.stdout)
            alone = alone or took
            measured = store.read_run(project / "reports").wall_s or math.nan
            print(f"devices: {count}; {measured:5.1f} s measuring, {took:5.1f} s in all, {alone / took:.2f} x")


def fake_project(root: Path, devices: int) -> Path:
    """The demo's ops, several times."""
    write_project(root)
    for folder in sorted((root / "kernels").iterdir()):
        for number in range(1, COPIES):
            copied(folder, folder.with_name(f"{folder.name}_{number}"))
    table = f"[tool.perfci.fake]\ndevices = {devices}\nwall_share = {WALL_SHARE}\n"
    (root / "pyproject.toml").write_text(table, encoding="utf-8")
    return root


def copied(folder: Path, other: Path) -> None:
    """An op under another name."""
    other.mkdir()
    for path in folder.glob("*.py"):
        text = path.read_text(encoding="utf-8").replace(folder.name, other.name)
        (other / path.name.replace(folder.name, other.name)).write_text(text, encoding="utf-8")


# --- how much less sure -----------------------------------------------------------------------------------------------


@dataclass
class Seen:
    """What the runs of one kind showed of a case."""

    spreads: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    """of the shift, one a process"""
    host_us: list[float] = field(default_factory=list)
    us: list[float] = field(default_factory=list)


def print_noise(devices: list[str], project: Path, rounds: int, fixed: list[str]) -> None:
    """Alone and side by side by turns, so that a warm room or a tired driver meets both."""
    print(machine())
    seen_of: dict[bool, dict[str, Seen]] = {False: defaultdict(Seen), True: defaultdict(Seen)}
    alarms: dict[bool, list[int]] = {False: [0, 0], True: [0, 0]}
    walls: dict[bool, list[float]] = {False: [], True: []}
    for number in range(rounds):
        for names in (*devices, ",".join(devices)):
            several = "," in names
            run, answer = tried(names, project, number, fixed)
            note(seen_of[several], run)
            walls[several].append(run.wall_s or math.nan)
            alarms[several] = [alarms[several][0] + answer[0], alarms[several][1] + answer[1]]
            print(
                f"round {number + 1}, devices {names}: {run.wall_s:.1f} s, {answer[0]} alarms of {answer[1]}",
                flush=True,
            )
    print_cases(seen_of)
    for several, name in ((False, "one device at a time"), (True, "side by side")):
        seen, checked = alarms[several]
        print(f"{name}: {statistics.median(walls[several]):.1f} s a run, {seen} false alarms in {checked} cases")


def tried(devices: str, project: Path, seed: int, fixed: list[str]) -> tuple[Run, tuple[int, int]]:
    """Checks every op against itself. Returns the run, the number of alarms and the number of cases."""
    asked = ("--against", "HEAD", "--duel", "all", "--suite", "performance", "--devices", devices, "--seed", str(seed))
    done = perfci("check", *asked, *fixed, "--format", "json")
    if done.returncode not in (0, 2, 3):
        sys.exit(done.stdout)
    duelled = [row for row in json.loads(done.stdout)["verdicts"] if row["duel"]]
    alarms = sum(row["verdict"] in {"REGRESSED", "IMPROVED"} for row in duelled)
    return store.read_run(project / "reports"), (alarms, len(duelled))


def note(seens: dict[str, Seen], run: Run) -> None:
    for op in run.ops:
        for case in op.performance:
            seen = seens[f"{op.op} {case.case}"]
            for blocks in by_process(case.blocks):
                shifts = [block.shifts[DUEL] for block in blocks]
                seen.medians.append(statistics.median(shifts))
                seen.spreads.append(statistics.stdev(shifts))
                seen.us += [block.arms["kernel"].time.median_us for block in blocks]
                seen.host_us += [block.arms["kernel"].host_us or math.nan for block in blocks]


def by_process(blocks: tuple[Block, ...]) -> Iterator[list[Block]]:
    for process in sorted({block.process for block in blocks}):
        mine = [block for block in blocks if block.process == process and DUEL in block.shifts]
        if len(mine) > 1:
            yield mine


def print_cases(seen_of: dict[bool, dict[str, Seen]]) -> None:
    print(
        "| case | kernel, us | spread alone | side by side | bias alone | side by side | host us alone | side by side |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    for name, alone in sorted(seen_of[False].items()):
        both = seen_of[True].get(name)
        if both is None or not both.spreads or not alone.spreads:
            continue
        pairs = [(alone.spreads, both.spreads), (list(map(abs, alone.medians)), list(map(abs, both.medians)))]
        cells = [f"{100 * statistics.median(values):.3f} %" for pair in pairs for values in pair]
        host = [f"{statistics.median(seen.host_us):.1f}" for seen in (alone, both)]
        ratios.append(statistics.median(both.spreads) / statistics.median(alone.spreads))
        print("| " + " | ".join([name, f"{statistics.median(alone.us):.1f}", *cells, *host]) + " |")
    if ratios:
        print(f"spread side by side / alone: median {statistics.median(ratios):.2f}, most {max(ratios):.2f}")


if __name__ == "__main__":
    main()
