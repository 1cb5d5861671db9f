"""Records modes of the decoder as workloads: `python examples/decoder/record.py llama-8b-decode`."""

import sys
from pathlib import Path
from time import perf_counter

import torch

import perfci

sys.path.insert(0, str(Path(__file__).parent))
from decoder import Scene

WARM_S = 3.0  # the clock of a GPU at its power limit takes so long to settle
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def record(name: str, steps: int = 5, project: Path = Path(__file__).parents[2]) -> None:
    """Store what a mode does as `kernels/_workloads/NAME.json` of the project."""
    recorder = perfci.record(name, project, steps=steps)  # before a graph is captured
    step, began = Scene(name, DEVICE).prepare(), perf_counter()
    while DEVICE == "cuda" and perf_counter() - began < WARM_S:
        step()
        torch.cuda.synchronize()
    with recorder:
        for _ in range(2 * steps + 1):
            step()
            recorder.step()


if __name__ == "__main__":
    for mode in sys.argv[1:]:
        record(mode)
