"""Whether both revisions give a rank's device the same work: only then a case need not be timed."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from perfci.core.codec import encode
from perfci.core.model import Identity, Reason
from perfci.device.launches import watch_launches
from perfci.device.seam import Accelerator
from perfci.extensions.ranks.records import BASE, KERNEL


def compare_work(arms: Mapping[str, Callable[[], Any]], device: Accelerator) -> Mapping[str, Any]:
    """Whether kernel and base do the same work on this rank, and why that is unknown.

    Values of tensors do not count, so a table of addresses is the same work wherever the peers' memory lies. Launches
    that neither Triton nor torch's operators tell of count with their parameters, as the driver was given them.
    """
    seen = {name: _listen(arms[name], device) for name in (KERNEL, BASE) if name in arms}
    unknown = next((identity.unknown for identity, _ in seen.values() if identity.unknown), None)
    texts = {(encode(identity), parameters) for identity, parameters in seen.values()}
    is_known = all(parameters is not None for _, parameters in seen.values()) and _hears(device)
    same = BASE in arms and unknown is None and is_known and len(texts) == 1
    return {"same": same, "unknown": unknown if BASE in arms else Reason("ranks_no_base")}


def _listen(call: Callable[[], Any], device: Accelerator) -> tuple[Identity, tuple[str, ...] | None]:
    """What a call does, and the parameters of what the driver alone tells of. None if those of any are unknown."""
    launches: list[Any] = []
    with device.capture_work() as capture, device.record_kernels(), watch_launches(launches.append):
        call()
    device.synchronize()
    parameters = tuple(launch.work.parameters for launch in launches if launch.work is not None)
    return capture.identity(""), None if None in parameters else parameters


def _hears(device: Accelerator) -> bool:
    """Whether the driver's launches are heard in this process, by one that neither torch nor Triton tells of."""
    identity, _ = _listen(lambda: torch.cuda._sleep(1), device)
    return bool(identity.launches)
