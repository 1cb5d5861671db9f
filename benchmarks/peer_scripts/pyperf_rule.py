"""pyperf's verdicts by pyperf's code. Runs in its environment: JSON pairs on standard input, verdicts on output."""

import json
import sys

import pyperf
from pyperf._compare import is_significant_benchs


def main() -> None:
    asked = json.load(sys.stdin)
    json.dump([verdict(pair) for pair in asked["pairs"]], sys.stdout)


def verdict(pair: dict) -> str:
    base, head = benchmark(pair["base"]), benchmark(pair["head"])
    if not is_significant_benchs(base, head)[0]:
        return "same"
    return "slower" if head.mean() > base.mean() else "faster"


def benchmark(values_us: list[float]) -> pyperf.Benchmark:
    values = [value * 1e-6 for value in values_us]
    return pyperf.Benchmark([pyperf.Run(values, metadata={"name": "kernel"}, collect_metadata=False)])


if __name__ == "__main__":
    main()
