"""Launches as they happen, and what the compiler made of them: Triton's, and others that an extension reports."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from triton.compiler import CompiledKernel
from triton.runtime.jit import JITFunction

from perfci.core.model import CompiledKernel as KernelFacts


@dataclass(frozen=True)
class Launched:
    """One launch."""

    function: Any  # the jitted function. None if only its binary is known
    kernel: Any  # Triton's CompiledKernel, or what has the same of another compiler's
    grid: tuple[int, int, int]
    arguments: Mapping[str, Any]  # by parameter, constants included
    work: Any = None  # what takes it down, of a launch that an extension reports

    @property
    def name(self) -> str:
        """The kernel's name in its source."""
        return str(self.kernel.name if self.function is None else self.function.fn.__name__)


@dataclass(frozen=True)
class RawParameter:
    """A parameter of which only the bytes are known, and the tensors that addresses in them lead to."""

    content: bytes  # zero in an address's place
    addresses: tuple[tuple[int, Any, int], ...] = ()  # offset, tensor, bytes behind its first element

    def text(self, of_tensor: Callable[[Any], str]) -> str:
        """The parameter as a text without addresses. Up to eight bytes are a number."""
        plain = str(int.from_bytes(self.content, "little")) if len(self.content) <= 8 else self.content.hex()
        parts = [f"{of_tensor(tensor)}+{shift} in {offset}" for offset, tensor, shift in self.addresses]
        return ", ".join(parts if len(parts) == 1 and len(self.content) == 8 else [plain, *parts])


_listeners: list[Callable[[Launched], None]] = []
_covering = 0  # launches and operations under way, of which all work is reported already


def tell(launch: Launched) -> None:
    """Report a launch to everyone who watches launches."""
    for heard in tuple(_listeners):
        heard(launch)


def count_listeners() -> int:
    """Those who watch launches now."""
    return len(_listeners)


def is_covered() -> bool:
    """Whether the work that is given to the device now is part of a launch or operation that is reported."""
    return _covering > 0


@contextmanager
def cover() -> Iterator[None]:
    """Whatever the device is given inside is part of one launch or operation."""
    global _covering  # noqa: PLW0603
    _covering += 1
    try:
        yield
    finally:
        _covering -= 1


@contextmanager
def watch_launches(heard: Callable[[Launched], None]) -> Iterator[None]:
    """Call `heard` with every launch inside, of a jitted function or a compiled binary. Not while timing."""
    run, runner = JITFunction.run, CompiledKernel.__getitem__

    def running(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if warmup:
            return run(self, *args, grid=grid, warmup=warmup, **kwargs)
        seen = _Grid(grid)
        with cover():
            kernel = run(self, *args, grid=seen, warmup=warmup, **kwargs)
        if seen.sides is not None and hasattr(kernel, "metadata"):  # else it was bound or compiled only
            heard(Launched(self, kernel, seen.sides, seen.arguments))
        return kernel

    def started(self: Any, grid: Any) -> Any:
        start = runner(self, grid)

        def starting(*args: Any, **kwargs: Any) -> None:
            with cover():
                start(*args, **kwargs)
            function = getattr(self.src, "fn", None)
            names = getattr(function, "arg_names", None) or [str(place) for place in range(len(args))]
            heard(Launched(function, self, pad_grid(grid), dict(zip(names, args, strict=False))))

        return starting

    _listeners.append(heard)
    try:
        with mock.patch.object(JITFunction, "run", running), mock.patch.object(CompiledKernel, "__getitem__", started):
            yield
    finally:
        _listeners.remove(heard)


def pad_grid(grid: Any) -> tuple[int, int, int]:
    """A grid of one to three sides with all three."""
    sides = [int(side) for side in grid]
    first, second, third = (*sides, 1, 1, 1)[:3]
    return first, second, third


class _Grid:
    """Stands in a grid's place. Triton calls it with the bound arguments just before it launches."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid
        self.sides: tuple[int, int, int] | None = None
        self.arguments: Mapping[str, Any] = {}

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        self.arguments = arguments
        grid = self._grid(arguments) if callable(self._grid) else self._grid
        self.sides = pad_grid(grid)
        return grid


@contextmanager
def record_kernels() -> Iterator[dict[str, KernelFacts]]:
    """Note every compiled kernel that is launched inside, by name and constants. Not for use while timing."""
    kernel_facts: dict[str, KernelFacts] = {}

    def heard(launch: Launched) -> None:
        if not launch.kernel.asm:  # a fill of memory, or a call that waits
            return
        metadata, constants = launch.kernel.metadata, _find_constants(launch)
        kernel_facts[f"{launch.name} {constants}"] = KernelFacts(
            name=launch.name,
            registers=getattr(launch.kernel, "n_regs", None),
            spills=getattr(launch.kernel, "n_spills", None),
            shared_bytes=getattr(metadata, "shared", None),
            warps=getattr(metadata, "num_warps", None),
            stages=getattr(metadata, "num_stages", None),
            constants=constants,
        )

    with watch_launches(heard):
        yield kernel_facts


def _find_constants(launch: Launched) -> str:
    """Named constants of the source. Triton keys them by position, nested for tuples."""
    constants = getattr(getattr(launch.kernel, "src", None), "constants", None) or {}
    names = getattr(launch.function, "arg_names", [])
    named = {}
    for key, value in constants.items():
        place = key[0] if isinstance(key, tuple) and len(key) == 1 else key
        name = names[place] if isinstance(place, int) and place < len(names) else place
        if isinstance(name, str) and name:
            named[name] = value
    return ",".join(f"{name}={value}" for name, value in sorted(named.items()))
