r"""How long the site takes for 40 ops of 8 cases on 3 devices with 200 runs each, and what it looks like.

The histories are made up, with a release in the middle. In some ops a kernel became slower or faster since then. Aim:
0.2 s of CPU a page.

Run: python benchmarks/site_speed.py [FOLDER [OPS RUNS]]

With FOLDER the project stays there. The picture in docs/history.md is of a small one:

    python benchmarks/site_speed.py /tmp/site 8 60
    chromium --headless --hide-scrollbars --window-size=860,750 --screenshot=docs/heat-map.png \
        /tmp/site/public/index.html
"""

import dataclasses
import math
import random
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from perfci.core.model import Gate, Verdict
from perfci.extensions.history import site
from perfci.extensions.history.alerts import Alert
from perfci.extensions.history.heat import Release
from tests import site_histories as histories

DEVICES = ("ascend-910b", "nvidia-h100", "nvidia-h200")
CASES = 8
CHANGES = (1.0, 1.0, 1.0, 1.0, 1.025, 1.06, 1.17, 0.97, 0.91)  # of the time, one drawn for an op and device


def main(folder: str = "", ops: int = 40, runs: int = 200) -> None:
    with tempfile.TemporaryDirectory() as place:
        root = Path(folder or place).resolve()
        root.mkdir(parents=True, exist_ok=True)
        (root / "pyproject.toml").write_text('[project]\nname = "kernels"\n')
        middle, later = runs * 6 // 10, runs * 7 // 10
        for device in DEVICES:
            for op, found in histories.many(ops, runs, CASES):
                rng = random.Random(f"{device} {op}")
                change, some = rng.choice(CHANGES), rng.sample(range(CASES), rng.choice([1, 3, CASES]))
                changed = [slow(run, change, some) for run in found[later:]]
                histories.project(root, {(device, op): [*found[:later], *changed]})
        release = Release("v1.4.0", frozenset(histories.commit(number) for number in range(middle)))
        case, commit = found[-1].cases[2].case, histories.commit(runs - 1)[:10]
        why = f"It is 6.3 % slower than {commit}, beyond the allowed 1.5 %."
        alert = Alert(DEVICES[2], "op_002", case, Verdict.REGRESSED, Gate.FAILS, 0.063, commit, why)
        wall, cpu = time.perf_counter(), time.process_time()
        built = site.build(root / "baselines", root, root / "public", release=release, alerts=[alert])
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        size = sum(path.stat().st_size for path in (root / "public").rglob("*.html"))
        most = max(path.stat().st_size for path in (root / "public").rglob("*.html"))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{len(built.pages)} pages of {runs} runs: {wall:.1f} s ({cpu:.1f} s of CPU), most memory {memory:.0f} MiB")
    print(f"{size / 1e6:.1f} MB, the largest page {most / 1e6:.2f} MB")


def slow(run, change: float, places: list[int]):
    """The run with some cases' times multiplied."""
    cases = list(run.cases)
    for place in places:
        case = cases[place]
        spread = dataclasses.replace(case.kernel_us, median_us=case.kernel_us.median_us * change)
        cases[place] = dataclasses.replace(case, kernel_us=spread, shift=case.shift + math.log(change))
    return dataclasses.replace(run, cases=tuple(cases))


if __name__ == "__main__":
    main(*sys.argv[1:2], *map(int, sys.argv[2:]))
