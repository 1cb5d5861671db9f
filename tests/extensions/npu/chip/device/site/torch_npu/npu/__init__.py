"""torch.npu of the stand-in."""

import os
from types import SimpleNamespace

import npu_device
import torch

from torch_npu.npu import utils

__all__ = ["Event", "Stream", "utils"]

MIB = 1 << 20


class Event:
    """An event on the device's clock."""

    def __init__(self, enable_timing=False, blocking=False, interprocess=False):
        self._event = torch.Event(device="npu", enable_timing=enable_timing)

    def record(self, stream=None):
        self._event.record(current_stream() if stream is None else stream)

    def wait(self, stream=None):
        self._event.wait(current_stream() if stream is None else stream)

    def elapsed_time(self, end_event):
        return self._event.elapsed_time(end_event._event)

    def query(self):
        return self._event.query()

    def synchronize(self):
        self._event.synchronize()


class Stream(torch.Stream):
    """A stream."""

    def __new__(cls, device=None, priority=0, **kwargs):
        return super().__new__(cls, device="npu", **kwargs)


class stream:  # noqa: N801 - its name in torch_npu
    """Make a stream the current one inside."""

    def __init__(self, wanted):
        self._wanted = wanted

    def __enter__(self):
        self._before = current_stream()
        set_stream(self._wanted)

    def __exit__(self, *_):
        set_stream(self._before)


def is_available():
    return device_count() > 0


def is_initialized():
    return True


def init():
    pass


def device_count():
    return npu_device.device_count()


def current_device():
    return torch.accelerator.current_device_index()


def set_device(device):
    torch.accelerator.set_device_index(torch.device(device).index or 0 if isinstance(device, str) else device)


def synchronize(device=None):
    torch.accelerator.synchronize()


def current_stream(device=None):
    return torch.accelerator.current_stream()


def default_stream(device=None):
    return torch.Stream(stream_id=0, device_index=current_device(), device_type=20)


def set_stream(wanted):
    torch.accelerator.set_stream(wanted)


def get_device_name(device_name=None):
    return os.environ.get("NPU_STAND_IN_NAME", "Ascend910B2")


def get_device_properties(device_name=None):
    return SimpleNamespace(
        name=get_device_name(),
        major=0,
        minor=0,
        total_memory=mem_get_info()[1],
        multi_processor_count=24,
        cube_core_num=24,
        vector_core_num=48,
        L2_cache_size=192 * MIB,
        uuid="",
    )


def mem_get_info(device=None):
    return torch.accelerator.get_memory_info()


def memory_stats(device=None):
    return torch.accelerator.memory_stats()


def memory_allocated(device=None):
    return torch.accelerator.memory_allocated()


def max_memory_allocated(device=None):
    return torch.accelerator.max_memory_allocated()


def memory_reserved(device=None):
    return torch.accelerator.memory_reserved()


def max_memory_reserved(device=None):
    return torch.accelerator.max_memory_reserved()


def reset_peak_memory_stats(device=None):
    torch.accelerator.reset_peak_memory_stats()


def empty_cache():
    torch.accelerator.empty_cache()


def is_bf16_supported():
    return True


def manual_seed(seed):
    pass


def manual_seed_all(seed):
    pass


def _is_in_bad_fork():
    return False


def get_rng_state(device="npu"):
    return torch.get_rng_state()


def set_rng_state(new_state, device="npu"):
    torch.set_rng_state(new_state)


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16]
