"""Compares perfci's two timers on the same kernels on this GPU: activity records and event pairs.

    python benchmarks/timers.py

Kernels of about 1, 5 and 100 us: a Triton broadcast of three sizes. Each timer gets its sessions, in turns, on
the same buffers, L2 flushed before each launch. Medians over all launches, and the spread of the sessions' medians.
"""

from __future__ import annotations

import statistics
import sys
from functools import partial
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "kernels" / "broadcast"), str(ROOT / "kernels")]

SIZES = {"1 us": (256, 256), "5 us": (4096, 1024), "100 us": (27648, 4096)}
SESSIONS = 10
LAUNCHES = 100


def main() -> None:
    import torch
    from broadcast_triton import broadcast

    from perfci.device import open_device

    devices = {name: open_device("cuda", seed=0, timer=name) for name in ("activity", "event")}
    for device in devices.values():
        device.start_timer()
    print(
        f"{devices['event'].info.name}, torch {torch.__version__}: {SESSIONS} sessions of {LAUNCHES} launches a timer"
    )
    print(f"{'kernel':8} {'timer':10} {'median us':>10} {'least us':>10} {'spread of sessions':>20}")
    for label, (rows, cols) in SIZES.items():
        x = torch.empty(rows, cols, dtype=torch.float32, device="cuda")
        call = partial(broadcast, x, torch.randn(cols, device="cuda"))
        for _ in range(50):
            call()
        times: dict[str, list[list[float]]] = {name: [] for name in devices}
        for _ in range(SESSIONS):
            for name, device in devices.items():
                with device.session() as session:
                    for _ in range(LAUNCHES):
                        session.launch(call)
                times[name].append([launch.time_us for launch in session.launches()])
        for name, sessions in times.items():
            medians = [statistics.median(one) for one in sessions]
            median, least = statistics.median(chain.from_iterable(sessions)), min(map(min, sessions))
            spread = 100 * (max(medians) / min(medians) - 1)
            print(f"{label:8} {name:10} {median:10.2f} {least:10.2f} {spread:18.1f} %")


if __name__ == "__main__":
    main()
