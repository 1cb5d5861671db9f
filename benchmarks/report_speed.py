"""How long a report of 500 cases takes to render; the aim is 10 s.

Run: python benchmarks/report_speed.py [OPS CASES_EACH]
"""

import importlib.util
import sys
import tempfile
import time
from pathlib import Path

from perfci import report

EXAMPLES = Path(__file__).parents[1] / "tests" / "example_runs.py"


def main(ops: int = 10, cases: int = 50) -> None:
    spec = importlib.util.spec_from_file_location("example_runs", EXAMPLES)
    examples = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(examples)
    run, judgements = examples.large(ops, cases)
    with tempfile.TemporaryDirectory() as folder:
        wall, cpu = time.perf_counter(), time.process_time()
        path = report.write(run, judgements, Path(folder))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        pictures = [file.stat().st_size for file in Path(folder).glob("*.png")]
        print(f"{ops * cases} cases in {ops} ops: {wall:.1f} s ({cpu:.1f} s of CPU)")
        print(f"{path.stat().st_size / 1024:.0f} KiB of Markdown")
        print(f"{len(pictures)} pictures, the largest {max(pictures) / 1024:.0f} KiB")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
