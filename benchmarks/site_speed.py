"""How long the site of a large project takes to build, and how large its pages are. Aims: 40 s of CPU, 1 MB a page.

200 ops with 100 kept runs of 20 cases each, two environments, a seventh of the ops creeping. `read` is the time to read
the histories alone, which is a part of `built`.

Run: python benchmarks/site_speed.py [OPS RUNS CASES]
"""

import importlib.util
import resource
import sys
import tempfile
import time
from pathlib import Path

from perfci.report import site

HISTORIES = Path(__file__).parent.parent / "tests" / "site_histories.py"
DEVICE = "nvidia-h200"


def main(ops: int = 200, runs: int = 100, cases: int = 20) -> None:
    histories = load()
    with tempfile.TemporaryDirectory() as place:
        root = Path(place).resolve()
        for op, found in histories.many(ops, runs, cases):
            histories.project(root, {(DEVICE, op): found})
        stored = sum(path.stat().st_size for path in root.rglob("*.jsonl"))
        places = site.list_places(root / "baselines")
        read = timed(lambda: [len(site.read_kept(root / "baselines", place, root).past.runs) for place in places])
        built = timed(lambda: site.build(root / "baselines", root, root / "public"))
        sizes = [path.stat().st_size for path in (root / "public").rglob("*.html")]
        index = (root / "public" / "index.html").stat().st_size
    print(f"{ops} ops x {runs} runs x {cases} cases, {stored / 1e6:.0f} MB of histories")
    print(f"read {read[0]:.1f} s; built {built[0]:.1f} s ({built[1]:.1f} s of CPU)")
    print(f"index {index / 1e6:.2f} MB; pages of up to {max(sizes) / 1e6:.2f} MB, {sum(sizes) / 1e6:.0f} MB in all")
    print(f"most memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


def load():
    spec = importlib.util.spec_from_file_location("histories", HISTORIES)
    module = importlib.util.module_from_spec(spec)
    sys.modules["histories"] = module
    spec.loader.exec_module(module)
    return module


def timed(work) -> tuple[float, float]:
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
