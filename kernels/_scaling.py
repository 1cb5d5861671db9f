"""Chooses scales of quantised storage: group sizes by what is clipped or by errors, and scales that follow a stream.

Needs only torch. `_quant` quantises with these scales.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

import _quant

CANDIDATES: tuple[str | int, ...] = ("tensor", "row", 512, 256, 128, 64, 32)
"""Ways of sharing scales to choose from: modes of `_quant.quantize`, and group sizes along the last side."""

TARGET = 0.01
"""Share of values that may be clipped."""

REACH = 4.0
"""A group's scale takes so many times its root mean square, but at most its amax, to the dtype's largest. Few outliers
are clipped, so they do not cost all others their precision. Of normal values it clips 6 in 100,000."""


# --- group size -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Way:
    """A way of sharing scales, and what it would do to a tensor."""

    mode: str
    """of `_quant.quantize`"""
    group: int
    """of mode group; of other modes it has no effect"""
    clip_ratio: float
    scale_bytes: int


@dataclass(frozen=True)
class Choice:
    """The choice."""

    way: Way
    tried: tuple[Way, ...]
    """in the order of their metadata, up to the chosen one; all of them if none keeps the target"""
    target: float

    @property
    def met(self) -> bool:
        """True if at most the target is clipped."""
        return self.way.clip_ratio <= self.target


def choose_group(
    x: torch.Tensor,
    dtype: torch.dtype,
    candidates: Sequence[str | int] = CANDIDATES,
    target: float = TARGET,
    reach: float = REACH,
) -> Choice:
    """Returns the way with the fewest bytes of scales that clips at most `target` of x.

    x: (..., m, n), float; candidates in any order. If none keeps the target it is the one that clips least, and of
    several such ways the one with fewer scales. Raises ValueError for no candidates, a target outside of 0 to 1, a
    reach that is not above 0 and an empty tensor; TypeError and ValueError as `_quant.quantize` does.
    """
    if not candidates or not 0 <= target <= 1 or not reach > 0 or not x.numel():
        raise ValueError(
            f"choose_group: needs values, candidates, a target from 0 to 1 and a reach above 0, but got "
            f"{x.numel()} values, {len(candidates)} candidates, target {target} and reach {reach}"
        )
    tried: list[Way] = []
    named = [_named(candidate) for candidate in candidates]
    for mode, group in named:
        _quant.check(x, dtype, mode, group)
    for mode, group in sorted(named, key=lambda each: math.prod(_quant.scale_shape(x.shape, *each))):
        scale = reach_scale(x, dtype, mode, group, reach)
        clipped = float(_quant.quantize(x, dtype, mode, scale, group).clip_ratio)
        tried.append(Way(mode, group, clipped, 4 * scale.numel()))
        if clipped <= target:
            return Choice(tried[-1], tuple(tried), target)
    return Choice(min(tried, key=lambda way: way.clip_ratio), tuple(tried), target)


def reach_scale(
    x: torch.Tensor, dtype: torch.dtype, mode: str, group: int = _quant.GROUP, reach: float = REACH
) -> torch.Tensor:
    """Returns scales for `_quant.quantize` with which `reach` times each group's root mean square just fits.

    float32 of shape `_quant.scale_shape`. A group's amax replaces it if that is less. Groups of zeros have 1. Only
    finite values count.
    """
    largest = torch.finfo(dtype).max
    wide = torch.where(x.isfinite(), x, torch.zeros_like(x)).to(torch.float32)
    peak = _quant.quantize(wide, dtype, mode, group=group).scale * largest
    # Squares of each group's parts of its amax, which neither overflow nor vanish.
    parts = (wide / _quant.spread(peak, x.shape, mode, group)).square()
    mean = _summed(parts, mode, group) / _summed(x.isfinite().to(torch.float32), mode, group).clamp(min=1)
    reached = torch.where(mean > 0, reach * mean.sqrt(), torch.ones_like(mean)).clamp(max=1) * peak
    return (reached / largest).clamp(min=torch.finfo(torch.float32).tiny)


def _named(candidate: str | int) -> tuple[str, int]:
    return ("group", candidate) if isinstance(candidate, int) else (candidate, _quant.GROUP)


def _summed(x: torch.Tensor, mode: str, group: int) -> torch.Tensor:
    """Returns the sum of each group."""
    if mode == "tensor":
        return x.sum()
    if mode in {"row", "column"}:
        return x.sum(-1 if mode == "row" else -2, keepdim=True)
    tall = group if mode == "block" else 1
    rows, cols = x.shape[-2:]
    padded = torch.nn.functional.pad(x, (0, -cols % group, 0, -rows % tall))
    return padded.unflatten(-1, (-1, group)).unflatten(-3, (-1, tall)).sum((-1, -3))


# --- groups of channels -----------------------------------------------------------------------------------------------

CHANNELS = (64, 32, 16, 8, 4)
"""Sizes of groups of channels to choose from. A float32 scale costs 4 bytes: 1/16 to 1 byte a value."""

ROOM = 1.75
"""How many times the least error a larger group may have. Of normal values groups of 64 err 1.55 times as much as
groups of 4, each of which has an exact value."""


@dataclass(frozen=True)
class Channels:
    """The size of a group of channels that was chosen, and what each size would do."""

    group: int
    errors: Mapping[int, float]
    """size of a group -> `channel_error`"""


def choose_channels(
    x: torch.Tensor, dtype: torch.dtype, groups: Sequence[int] = CHANNELS, room: float = ROOM
) -> Channels:
    """Returns the largest group of neighbours along the last side that errs at most `room` times as much as the best.

    x: (..., rows, channels), float. Few channels of extreme size lead to small groups, and like channels to large ones.
    Raises TypeError and ValueError as `_quant.quantize` does, ValueError for no groups.
    """
    if not groups:
        raise ValueError("choose_channels: groups is empty, but has to have a size")
    errors = {group: channel_error(x, _quant.quantize(x, dtype, "group", group=group), group) for group in groups}
    least = min(errors.values())
    return Channels(max(group for group, error in errors.items() if error <= room * least), errors)


def channel_error(x: torch.Tensor, stored: _quant.Quantized, group: int) -> float:
    """Returns the relative error of channels stored in groups, as the root of its mean square over channels.

    Of a channel it is the root mean square of the error by that of its values. So all channels count alike, however
    small, since weights often make up for their size. Channels of zeros do not count, and only finite values do.
    """
    wide = torch.where(x.isfinite(), x, torch.zeros_like(x)).to(torch.float32).flatten(0, -2)
    error = _quant.dequantize(stored.values, stored.scale, "group", group).flatten(0, -2) - wide
    error = torch.where(x.isfinite().flatten(0, -2), error, torch.zeros_like(error))
    largest = wide.abs().amax(0).clamp(min=torch.finfo(torch.float32).tiny)  # squares neither overflow nor vanish
    size, squares = (wide / largest).square().mean(0), (error / largest).square().mean(0)
    return float((squares[size > 0] / size[size > 0]).mean().sqrt()) if bool((size > 0).any()) else 0.0


def quantize_channels(x: torch.Tensor, dtype: torch.dtype, group: int | str = "auto") -> _quant.Quantized:
    """Returns x (rows, channels) with a scale for each row of each group of channels, of its chosen size if "auto"."""
    size = choose_channels(x, dtype).group if group == "auto" else group
    return _quant.quantize(x, dtype, "group", group=size)


# --- scales that follow a stream --------------------------------------------------------------------------------------

FORMAT = 1
"""Of the file that states are saved in."""

DTYPES = ("float8_e4m3fn", "float8_e5m2")


class StateError(ValueError):
    """A file of saved states that cannot be used."""


@dataclass(frozen=True)
class ScaleState:
    """The state of a dynamic scale: the tensors that it has seen."""

    dtype: str
    """of the stored values, one of DTYPES"""
    mean: float | None = None
    """exponential moving average of their amax; None before the first"""
    seen: int = 0
    """tensors in the mean"""
    spikes: int = 0
    """those of them with an amax of at least `spike` times the mean"""
    decay: float = 0.9
    """share of the mean that a new tensor leaves: 0.9 looks back over some 10 tensors"""
    margin: float = 1.25
    """how much more than the mean amax the scale has room for"""
    spike: float = 10.0


@dataclass(frozen=True)
class Observed:
    """The result of one more tensor."""

    state: ScaleState
    amax: float
    """of its finite values"""
    spiked: bool
    """its amax is at least `spike` times the mean of those before it"""


def observe(state: ScaleState, x: torch.Tensor) -> Observed:
    """Returns the state with one more tensor: mean = decay * mean + (1 - decay) * amax, starting with the first amax.

    A spike counts as `spike` times the mean, so one bad tensor does not cost the later ones their precision, but
    growth that lasts is still followed. A tensor with no finite values except 0 changes nothing. Waits for the device.
    """
    amax = float(torch.where(x.isfinite(), x.abs(), torch.zeros_like(x)).amax()) if x.numel() else 0.0
    if not amax:
        return Observed(state, 0.0, spiked=False)
    if state.mean is None:
        return Observed(replace(state, mean=amax, seen=state.seen + 1), amax, spiked=False)
    spiked = amax >= state.spike * state.mean
    counted = min(amax, state.spike * state.mean)
    mean = state.decay * state.mean + (1 - state.decay) * counted
    return Observed(replace(state, mean=mean, seen=state.seen + 1, spikes=state.spikes + spiked), amax, spiked)


def dynamic_scale(state: ScaleState, device: torch.device | str = "cpu") -> torch.Tensor:
    """Returns the scale for the next tensor, float32 of shape (), for `_quant.quantize` in mode tensor; 1 at first."""
    largest = torch.finfo(getattr(torch, state.dtype)).max
    scale = 1.0 if state.mean is None else state.margin * state.mean / largest
    return torch.tensor(max(scale, torch.finfo(torch.float32).tiny), dtype=torch.float32, device=device)


def save_states(states: Mapping[str, ScaleState], path: Path | str) -> None:
    """Writes states by name, whole or not at all: the old file stays until the new one is on disk."""
    target = Path(path)
    text = json.dumps({"format": FORMAT, "states": {name: asdict(state) for name, state in states.items()}}, indent=1)
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def load_states(path: Path | str) -> dict[str, ScaleState]:
    """Returns the states of a file of `save_states`. Raises StateError with the file's name for other content."""
    try:
        states = json.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise StateError(f"{path}: there is no such file; save_states writes one") from None
    except (OSError, ValueError) as error:
        raise StateError(f"{path}: cannot be read as saved scales ({error}); delete it to start again") from error
    if not isinstance(states, dict) or not isinstance(states.get("states"), dict):
        raise StateError(f"{path}: has no saved scales; delete it to start again")
    if states.get("format") != FORMAT:
        raise StateError(f"{path}: is of format {states.get('format')!r}, and this reads format {FORMAT}")
    return {name: _state(path, name, state) for name, state in states["states"].items()}


def _state(path: Path | str, name: str, given: Any) -> ScaleState:
    known = {field.name for field in fields(ScaleState)}
    if not isinstance(given, dict) or set(given) != known:
        there = sorted(given) if isinstance(given, dict) else type(given).__name__
        raise StateError(f"{path}: state {name!r} has {there}, and needs {sorted(known)}")
    wrong = next((field for field, fits in _FITS.items() if not fits(given[field])), None)
    if wrong:
        raise StateError(f"{path}: {wrong} of state {name!r} is {given[wrong]!r}, which no scale can have")
    return ScaleState(**given)


def _is_number(value: Any, low: float, high: float = math.inf) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low < value < high


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


_FITS = {
    "dtype": lambda value: value in DTYPES,
    "mean": lambda value: value is None or _is_number(value, 0),
    "seen": _is_count,
    "spikes": _is_count,
    "decay": lambda value: _is_number(value, 0, 1),
    "margin": lambda value: _is_number(value, 0),
    "spike": lambda value: _is_number(value, 1),
}
