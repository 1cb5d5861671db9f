"""asv's verdicts by asv's code. Runs in asv's environment: JSON pairs on standard input, verdicts on output."""

import json
import sys

from asv.commands.compare import _is_result_better
from asv_runner.statistics import compute_stats


def main() -> None:
    asked = json.load(sys.stdin)
    json.dump([verdict(pair, asked["factor"]) for pair in asked["pairs"]], sys.stdout)


def verdict(pair: dict, factor: float) -> str:
    base, base_stats = compute_stats(pair["base"], pair["number"])
    head, head_stats = compute_stats(pair["head"], pair["number"])
    sides = (base_stats, pair["base"]), (head_stats, pair["head"])
    if _is_result_better(base, head, *sides, factor):
        return "slower"
    return "faster" if _is_result_better(head, base, *sides[::-1], factor) else "same"


if __name__ == "__main__":
    main()
