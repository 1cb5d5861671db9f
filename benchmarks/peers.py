"""Other tools' verdicts on the same launches, by their code if PyPI has it.

Each tool gets the same number of launches, in the form that its user would give them. asv,
pyperf and nvbench's comparison run in their environments, made on demand in a folder that is kept.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import mannwhitneyu

Floats = NDArray[np.float64]
Verdict = str
"""slower, faster or same; a tool's ambiguous counts as same"""

SCRIPTS = Path(__file__).parent / "peer_scripts"


@dataclass(frozen=True)
class Pair:
    """Launches of base and head in chunks: what was timed in a row, in time order, microseconds."""

    base: Sequence[Floats]
    head: Sequence[Floats]
    clocks_mhz: tuple[float, float]
    """SM clock at which base and head ran, by NVML"""

    def all(self) -> tuple[Floats, Floats]:
        return np.concatenate(self.base), np.concatenate(self.head)

    def means(self) -> tuple[Floats, Floats]:
        """One value a chunk, as tools that time a loop around the call would see it."""
        return np.array([chunk.mean() for chunk in self.base]), np.array([chunk.mean() for chunk in self.head])


@dataclass(frozen=True)
class Peer:
    """A tool and its verdicts on pairs."""

    name: str
    rule: str
    """what it gets and how it decides, in one line"""
    verdicts: Callable[[Sequence[Pair]], list[Verdict]]


@dataclass(frozen=True)
class Missing:
    """A tool that could not be had."""

    name: str
    why: str


def available(folder: Path | None) -> tuple[list[Peer], list[Missing]]:
    """Returns all peers. folder: for the environments of those from PyPI; None leaves these out."""
    peers = [NAIVE, GOOGLE_BENCHMARK, MEAN_RATIO]
    if folder is None:
        return peers, [Missing(name, "not asked for: --peers makes its environment") for name in _PACKAGES]
    missing = []
    for name, package in _PACKAGES.items():
        python = _environment(folder / name, package)
        if isinstance(python, Missing):
            missing.append(python)
        else:
            peers.extend(_FROM_PYPI[name](python))
    return peers, missing


_PACKAGES = {"asv": "asv>=0.6", "pyperf": "pyperf>=2.7", "nvbench": "cuda-bench[compare]>=0.3"}


def _environment(folder: Path, package: str) -> Path | Missing:
    """The interpreter of an environment with the package, made unless it is there."""
    python = folder / "bin" / "python"
    if (folder / "complete").is_file():
        return python
    for command in ([sys.executable, "-m", "venv", folder], [python, "-m", "pip", "install", "--quiet", package]):
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            return Missing(folder.name, (made.stderr.strip().splitlines() or ["no word of why"])[-1])
    (folder / "complete").touch()
    return python


# --- rules without a package ------------------------------------------------------------------------------------------

ALPHA = 0.05


def _two_sided(base: Floats, head: Floats) -> Verdict:
    if mannwhitneyu(base, head, alternative="two-sided").pvalue >= ALPHA:
        return "same"
    return "slower" if np.median(head) > np.median(base) else "faster"


def _ratio(base: Floats, head: Floats, most: float = 1.1) -> Verdict:
    ratio = float(head.mean() / base.mean())
    return "slower" if ratio > most else "faster" if ratio < 1 / most else "same"


NAIVE = Peer(
    "Mann-Whitney on launches",
    "every launch a sample; two-sided Mann-Whitney U at 0.05 (scipy)",
    lambda pairs: [_two_sided(*pair.all()) for pair in pairs],
)
GOOGLE_BENCHMARK = Peer(
    "Google Benchmark",
    "one repetition a chunk, its mean; the documented rule of compare.py, a two-sided Mann-Whitney U at 0.05, through "
    "scipy, since its wheel has no compare.py",
    lambda pairs: [_two_sided(*pair.means()) for pair in pairs],
)
MEAN_RATIO = Peer(
    "10 % mean ratio",
    "means of all launches more than 10 % apart",
    lambda pairs: [_ratio(*pair.all()) for pair in pairs],
)

# --- asv, pyperf ------------------------------------------------------------------------------------------------------


def _asked(python: Path, script: str, **question: Any) -> list[Verdict]:
    done = subprocess.run(
        [python, SCRIPTS / script], input=json.dumps(question), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def _by_means(pairs: Sequence[Pair]) -> list[dict[str, Any]]:
    return [
        {"base": base.tolist(), "head": head.tolist(), "number": len(pair.base[0])}
        for pair in pairs
        for base, head in [pair.means()]
    ]


def _asv(python: Path, factor: float) -> Peer:
    return Peer(
        f"asv, factor {factor}",
        "one sample a chunk, its mean (asv times a loop); `asv compare` with its statistics and "
        f"{'its default' if factor == 1.1 else 'the'} factor of {factor}, through asv's functions",
        lambda pairs: _asked(python, "asv_rule.py", factor=factor, pairs=_by_means(pairs)),
    )


def _pyperf(python: Path) -> Peer:
    return Peer(
        "pyperf",
        "one value a chunk, its mean (pyperf times a loop); `pyperf compare_to`, Student's t at 95 %, through its "
        "functions",
        lambda pairs: _asked(python, "pyperf_rule.py", pairs=_by_means(pairs)),
    )


# --- nvbench ----------------------------------------------------------------------------------------------------------


def _nvbench(python: Path) -> Peer:
    return Peer(
        "nvbench, robust",
        "every launch a sample of one state; the summaries of its JSON computed from them. nvbench measures the SM "
        "clock of each side itself; here it is NVML's, read after each side's 120 launches, or around the blocks that "
        "both sides share. The program nvbench-compare-robust as it is",
        lambda pairs: _compared(python.parent / "nvbench-compare-robust", pairs),
    )


def _compared(program: Path, pairs: Sequence[Pair]) -> list[Verdict]:
    states = [
        [_state(place, pair.all()[arm], pair.clocks_mhz[arm]) for place, pair in enumerate(pairs)] for arm in (0, 1)
    ]
    compared = compare_documents([program], *(json.dumps(_document(arm)) for arm in states))
    return [compared[f"Check={number}"] for number in range(len(pairs))]


def compare_documents(program: Sequence[str | Path], reference: str, compared: str) -> dict[str, Verdict]:
    """What nvbench-compare-robust says of each state in two of nvbench's JSON documents, by the state's key."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("reference.json", "compare.json", "rows.py")]
        for file, text in zip(files, (reference, compared), strict=False):
            file.write_text(text, encoding="utf-8")
        command = [*program, *files[:2], "--no-color", "--bulk-debug-python", files[2]]
        subprocess.run(command, capture_output=True, text=True, check=True)
        rows = _rows(files[2].read_text(encoding="utf-8"))
    words = {"SLOW": "slower", "FAST": "faster"}
    return {row["state_key"]: words.get(row["status"], "same") for row in rows}


def _rows(python: str) -> list[dict[str, Any]]:
    """Returns the program's verdict on each state, from the file that it writes for debugging."""
    for node in ast.parse(python).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "bulk_rows":
            return ast.literal_eval(node.value)
    raise ValueError("nvbench-compare-robust wrote no rows")


def _document(states: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    version = {"major": 1, "minor": 0, "patch": 0, "string": "1.0.0"}
    values = [{"input_string": str(number), "description": "", "value": number} for number in range(len(states))]
    axis = {"name": "Check", "type": "int64", "flags": "", "values": values}
    benchmark = {"name": "kernel", "index": 0, "devices": [0], "axes": [axis], "states": states}
    devices = [{"id": 0, "name": "NVIDIA H200"}]
    return {"meta": {"argv": [], "version": {"json": version}}, "devices": devices, "benchmarks": [benchmark]}


def _state(number: int, times_us: Floats, clock_mhz: float) -> dict[str, Any]:
    times = np.sort(times_us) * 1e-6
    # nvbench's quantiles are order statistics: rank round((n - 1) q).
    low, q1, median, q3, high = (float(times[int((times.size - 1) * q + 0.5)]) for q in (0, 0.25, 0.5, 0.75, 1))
    mean, sd = float(times.mean()), float(times.std(ddof=1))
    seconds = {"min": low, "max": high, "mean": mean, "q1": q1, "median": median, "q3": q3}
    spreads = {"stdev/absolute": sd, "stdev/relative": sd / mean}
    spreads |= {"iqr/absolute": q3 - q1, "iqr/relative": (q3 - q1) / median}
    summaries = [_summary(f"nv/cold/time/gpu/{name}", value) for name, value in (seconds | spreads).items()]
    summaries.append(_summary("nv/cold/sm_clock_rate/mean", clock_mhz * 1e6))
    axis = [{"name": "Check", "type": "int64", "value": str(number)}]
    name = f"Device=0 Check={number}"
    return {"name": name, "device": 0, "axis_values": axis, "summaries": summaries, "is_skipped": False}


def _summary(tag: str, value: float) -> dict[str, Any]:
    return {"tag": tag, "name": tag, "data": [{"name": "value", "type": "float64", "value": str(value)}]}


_FROM_PYPI: Mapping[str, Callable[[Path], list[Peer]]] = {
    "asv": lambda python: [_asv(python, 1.1), _asv(python, 1.02)],
    "pyperf": lambda python: [_pyperf(python)],
    "nvbench": lambda python: [_nvbench(python)],
}
