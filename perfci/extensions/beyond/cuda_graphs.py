"""Graphs of CUDA, by torch."""

from collections.abc import Callable
from typing import Any

import torch

WARM = 3  # calls before a capture, on another stream, as torch asks for


class CudaGraph:
    """A call that was captured."""

    def __init__(self, call: Callable[[], Any]) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                call()
        torch.cuda.current_stream().wait_stream(stream)
        self.launches = count_activities(call)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self.output = call()

    def replay(self) -> int:
        """Repeat the call's work, and wait for it. Returns how many kernels and copies that were."""
        return count_activities(self._graph.replay)


def count_activities(call: Callable[[], Any]) -> int:
    """Returns how many kernels, copies and memsets a call has the device do."""
    activity = torch.profiler.ProfilerActivity.CUDA
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=[activity], acc_events=True) as profile:  # else newer torch warns
        call()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in profile.events())
