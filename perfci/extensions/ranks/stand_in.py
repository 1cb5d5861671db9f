"""One rank of a group without the others, for a process that compiles and launches nothing: `perfci static`."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

from perfci.extensions.ranks.spec import bind_rank, list_sizes
from perfci.worker.load import LoadedOp

Way = tuple[str, Callable[[], AbstractContextManager[None]], Callable[..., Mapping[str, Any]]]
"""What stands before a case's id, a context in which calls are one rank's, and make_inputs of that rank"""


def list_ways(op: LoadedOp) -> Iterator[Way]:
    """Yields how an op is called as each rank of groups of each size that it is for."""
    for ranks in (size for size in list_sizes(op.accuracy.ranks) if size > 1):
        for rank in range(ranks):
            make = bind_rank(op.performance.make_inputs, rank, ranks)
            yield f"ranks={ranks},rank={rank},", partial(stand_in, rank, ranks), make


@contextmanager
def stand_in(rank: int, ranks: int) -> Iterator[None]:
    """Make torch.distributed's default group one in which collectives give what they get, and peers' memory is ours."""
    import torch
    import torch.distributed as dist
    import torch.distributed._symmetric_memory as symmetric
    from torch.testing._internal.distributed.fake_pg import FakeStore

    def meet(memory: Any, _group: Any) -> Any:
        return SimpleNamespace(buffer_ptrs=[memory.data_ptr()] * ranks, rank=rank, world_size=ranks)

    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        with (
            mock.patch.multiple(symmetric, empty=torch.empty, rendezvous=meet),
            mock.patch.object(dist, "barrier"),
        ):
            yield
    finally:
        dist.destroy_process_group()
