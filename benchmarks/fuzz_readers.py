"""Fuzz what reads JSON and YAML, led by the code that each input reaches: atheris, which is libFuzzer for Python.

python -m pip install atheris                    # Linux; wheels for Python 3.11 and newer; no dependency of perfci
python benchmarks/fuzz_readers.py json           # run.json, baselines, launches, messages; ten minutes
python benchmarks/fuzz_readers.py yaml --seconds 3600

Every input has to be read, or refused with a PerfciError (a ValueError, for a message) that names the file. What does
neither is written to crash-* and ends the run with its traceback, and so does an input that takes over ten seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import sys
import tempfile
from pathlib import Path

from perfci.store.launches import read_launches
from perfci.thresholds.read import load

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 10
NAMES = {"run.json": "nvidia-h200/run.json", "baseline": "nvidia-h200/softmax.json"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["json", "yaml"])
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--corpus", type=Path, help="kept there from run to run; a temporary folder unless named")
    asked = parser.parse_args()
    try:
        import atheris
    except ImportError:
        sys.exit("atheris is not installed: python -m pip install atheris")
    with tempfile.TemporaryDirectory() as name:
        corpus = asked.corpus or Path(name, "corpus")
        corpus.mkdir(parents=True, exist_ok=True)
        with atheris.instrument_imports(include=["perfci", "yaml"]):
            seeds, target = SEEDS[asked.what](), TARGETS[asked.what](Path(name))
        for number, seed in enumerate(seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
        options = [f"-max_total_time={asked.seconds}", f"-timeout={LIMIT_S}", "-rss_limit_mb=2048", "-max_len=20000"]
        atheris.Setup([sys.argv[0], *options, "-print_final_stats=1", str(corpus)], target)
        atheris.Fuzz()


def outcome(read):
    """What is read, or the reason why it is refused."""
    from perfci.core.errors import PerfciError

    try:
        return read()
    except PerfciError as error:
        return error.reason


def json_target(folder: Path):
    from perfci import store
    from perfci.core.model import Baseline, Reason, Run
    from perfci.core.wording import sentence
    from perfci.judge import judge
    from perfci.report.data import to_json
    from perfci.store.launches import LAUNCHES_FILE
    from perfci.thresholds.limits import Thresholds
    from perfci.worker.protocol import unpack
    from perfci.worker.tasks import Measure

    run, baseline = (folder / path for path in NAMES.values())
    run.parent.mkdir()

    def read(path: Path, data: bytes, reader):
        path.write_bytes(data)
        answer = outcome(lambda: reader(path))
        assert path.read_bytes() == data
        assert not isinstance(answer, Reason) or str(path) in sentence(answer), answer
        return answer

    def target(data: bytes) -> None:
        stored = read(baseline, data, store.read_baseline)
        answer = read(run, data, store.read_run)
        if isinstance(answer, Run):
            limits = Thresholds()
            baselines = {"softmax": stored} if isinstance(stored, Baseline) else {}
            to_json(judge(answer, baselines, limits), answer)
        for written in (data, gzip.compress(data, 1)):
            (folder / LAUNCHES_FILE).write_bytes(written)
            refused = outcome(lambda: read_launches(folder))
            assert not isinstance(refused, Reason) or LAUNCHES_FILE in sentence(refused), refused
        with contextlib.suppress(ValueError):
            unpack(data + b"\n", Measure.answers)

    return target


def yaml_target(folder: Path):
    from perfci.core.model import Reason
    from perfci.core.wording import sentence

    def target(data: bytes) -> None:
        for name in ("default.yaml", "softmax.yaml"):
            path = folder / name
            path.write_bytes(data)
            answer = outcome(lambda: load(folder))
            if isinstance(answer, Reason):
                assert name in sentence(answer), answer
            else:
                assert answer.for_case("softmax", "rows=1,dtype=float32").allowed(10.0, "activity") > 0
            assert path.read_bytes() == data
            path.unlink()

    return target


def json_seeds() -> list[bytes]:
    """Files as perfci writes them, small ones, and a few that no one writes."""
    sys.path.insert(0, str(ROOT))
    from perfci.core.model import Baseline, BaselineBlock, BaselineCase, BaselineRun
    from perfci.store.layout import text
    from perfci.worker.protocol import Doing, pack
    from tests import example_runs

    run, _ = example_runs.large(1, 1)
    block = BaselineBlock("r1", 10.0, 12.0, -0.2)
    stored = (BaselineRun("r1", "2026-01-01T00:00:00Z", run.environment),)
    baseline = Baseline("softmax", "nvidia-h200", "activity", stored, (BaselineCase("rows=1", (block,)),))
    return [
        text(run).encode(),
        text(baseline).encode(),
        pack(Doing("measure", "softmax")),
        b'{"format": 1}',
        b"[[[[",
        b"1e999",
    ]


def yaml_seeds() -> list[bytes]:
    """The thresholds of this repository, and every kind of value."""
    files = [path.read_bytes() for path in sorted((ROOT / "thresholds").glob("*.yaml"))]
    odd = b"tau: {0: 5 %, 40: 1 %}\nfloor_us: {event: 0.5}\ncases: {'dtype=*': {margin: 4 %}}\nspeedup: !!float 1.2\n"
    return [*files, odd, b"a: &a [*a]", b"? [a]\n: !!binary x", b"<<: {margin: 2 %}"]


TARGETS = {"json": json_target, "yaml": yaml_target}
SEEDS = {"json": json_seeds, "yaml": yaml_seeds}

if __name__ == "__main__":
    main()
