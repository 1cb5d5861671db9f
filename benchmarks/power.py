"""A planted loss of a kernel at the power limit: matmul without its grouped order, in a copy of this repository.

    python benchmarks/power.py --times 3                # `group_m` 16 -> 1, some two minutes of one GPU each
    python benchmarks/power.py --unchanged 3            # A/A of the ops that reach the limit

Grouped order keeps tiles in the cache: without it a product takes longer at the free clock, and draws more power, which
lowers the clock that the board can sustain. It needs git, a GPU, and torch and Triton in the interpreter that runs it,
and no network. Every check compares a commit with the one before it, as `perfci check OP --suite performance --against
HEAD~1` does. A case is found if it is REGRESSED.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from collections import Counter
from pathlib import Path

import host_time

from perfci import store

OPS = ("attention", "conv2d", "fp8_matmul", "matmul")


def plant(folder: Path) -> None:
    """Every configuration of the tuned file, and the fallback, with tiles row by row."""
    path = folder / "kernels" / "matmul" / "matmul_triton.py"
    text = path.read_text()
    for before in ('Config(**entry["config"])', "return FALLBACK_TMA"):
        assert text.count(before) == 1, f"{path} has {before} {text.count(before)} times"
        text = text.replace(before, f"{before}._replace(group_m=1)")
    path.write_text(text)


def show(folder: Path) -> None:
    """Each case's change at the free clock, and what its arms sustain."""
    for op in store.read_run(folder / "reports").ops:
        for case in op.performance:
            shifts = [block.shifts["kernel/base"] for block in case.blocks if "kernel/base" in block.shifts]
            clocks = [block.clock_mhz for block in case.blocks if block.clock_mhz]
            line = f"    {case.case}: {100 * math.expm1(host_time.middle(shifts)):+.1f} %" if shifts else "    -"
            line += f" at {host_time.middle(clocks):.0f} MHz" if clocks else ""
            line += f", {len(shifts)} blocks, {sum(block.held for block in case.blocks)} of them held down"
            for arm in ("kernel", "base", "reference"):
                turns = [turn for turn in case.sustained if turn.arm == arm]
                if turns:
                    us = host_time.middle([turn.us for turn in turns])
                    joules = host_time.middle([turn.joules or math.nan for turn in turns])
                    line += f"; {arm} sustained {us:.1f} us, {joules:.3f} J"
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=0, help="checks of the planted loss")
    parser.add_argument("--unchanged", type=int, default=0, metavar="TIMES", help="A/A checks of four ops")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perfci-power-") as place:
        folder = Path(place) / "project"
        host_time.make_repository(folder)
        plant(folder)
        host_time.commit(folder)
        for turn in range(options.times):
            seen = host_time.check(folder, ["matmul"])["matmul"]
            print(f"planted, check {turn + 1}: {dict(seen.others)}, {seen.seconds:.0f} s", flush=True)
            show(folder)
        host_time.git(folder, "revert", "--no-edit", "HEAD")
        totals = Counter[str]()
        for turn in range(options.unchanged):
            for op in OPS:
                host_time.comment(folder, op)
            host_time.commit(folder)
            checked = host_time.check(folder, OPS, "--duel", "all")
            for seen in checked.values():
                totals.update(seen.others)
            counts = {op: dict(seen.others) for op, seen in checked.items()}
            print(f"A/A {turn + 1}: {counts}, {seen.seconds:.0f} s", flush=True)
        if options.unchanged:
            print(f"A/A: {totals.total()} duels, {dict(totals)}")


if __name__ == "__main__":
    main()
