"""Autotuners where nothing can be timed: every candidate is noted, and the first that compiles is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton.runtime.errors import OutOfResources
from triton.runtime.jit import JITFunction

from perfci.device.launches import padded
from perfci.device.noted import note_choice
from perfci.device.source import digest, function_text, stable


class _State:
    trying = False
    """launches bind their arguments and work out their grids, but compile nothing"""


def choose(self: Any, *args: Any, **kwargs: Any) -> Any:
    """In an autotuner's place: note every candidate with what it would launch, and launch the first that compiles.

    Which one a device would choose is not known here, and code of those that are not compiled is only in the source,
    so that is noted too.
    """
    self.nargs = dict(zip(self.arg_names, args, strict=False))
    configs = self.prune_configs(kwargs) if len(self.configs) > 1 else self.configs
    if len(self.configs) > 1:
        name = self.base_fn.__name__
        note_choice(f"{name}: source {_source_digest(self)}")
        for config in configs:
            with _trying():
                launch = self.fn.run(*args, **kwargs, **config.all_kwargs())
            note_choice(f"{name}: perhaps {config}, {launch}")
    try:
        return _first_that_compiles(self, configs, args, kwargs)
    finally:
        self.nargs = None


def _first_that_compiles(tuner: Any, configs: Any, args: Any, kwargs: Any) -> Any:
    error: Exception | None = None
    for config in configs:
        tuner.best_config = config
        if config.pre_hook is not None:
            config.pre_hook({**tuner.nargs, **kwargs, **config.all_kwargs()})
        try:
            return tuner.fn.run(*args, **kwargs, **config.all_kwargs())
        except Exception as failure:
            if not _is_skipped(failure):
                raise
            error = failure
    assert error is not None  # an autotuner has at least one config
    raise error


def _is_skipped(error: Exception) -> bool:
    """Whether Triton's own autotuner goes on to the next candidate."""
    return isinstance(error, OutOfResources) or type(error).__name__ in {"CompileTimeAssertionFailure", "PTXASError"}


def _source_digest(tuner: Any) -> str:
    """Digest of the kernel's source, of all that it calls, and of the heuristics between it and the tuner."""
    texts = [function_text(tuner.base_fn)]
    inner = tuner.fn
    while not isinstance(inner, JITFunction) and hasattr(inner, "fn"):
        texts.append(stable(getattr(inner, "values", None)))
        inner = inner.fn
    return digest("\n".join(texts))


@contextmanager
def _trying() -> Iterator[None]:
    _State.trying = True
    try:
        yield
    finally:
        _State.trying = False


def trying_or(run: Callable[..., Any]) -> Callable[..., Any]:
    """JITFunction.run that only says what it would launch while a tuner asks."""

    def running(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        if _State.trying:
            return _bound(self, args, kwargs, grid)
        return run(self, *args, grid=grid, warmup=warmup, **kwargs)

    return running


def _bound(function: Any, args: Any, kwargs: Any, grid: Any) -> str:
    """The launch that a call would make: its grid and whatever is no tensor."""
    known = {name: value for name, value in kwargs.items() if name in function.signature.parameters}
    bound = function.signature.bind(*args, **known)
    bound.apply_defaults()
    sides = padded(grid(bound.arguments) if callable(grid) else grid)
    plain = {name: value for name, value in bound.arguments.items() if not hasattr(value, "data_ptr")}
    return f"grid {sides}, {stable(plain, lambda value: 'tensor' if hasattr(value, 'data_ptr') else None)}"
