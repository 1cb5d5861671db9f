"""Kernels for an NPU without one and without CANN: triton-ascend alone compiles as far as TTIR, which is compared.

What comes behind it needs the compiler of CANN. TTIR and the compiler's options decide what that makes, as long as both
revisions have the same CANN, which the environment tells.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from triton.backends import backends

NAME = "ascend"
"""What triton-ascend's folder among Triton's backends is called."""

BINARY = "npubin"
"""What its last stage makes."""


def has_compiler() -> bool:
    """Whether this Triton compiles for NPUs."""
    return NAME in backends


def stop_at_ttir() -> None:
    """Have triton-ascend's compiler give TTIR in the binary's place, for the rest of the process's life."""
    compiler = backends[NAME].compiler
    whole = compiler.add_stages

    def add_stages(self: Any, stages: MutableMapping[str, Any], options: Any, *more: Any) -> None:
        whole(self, stages, options, *more)
        kept = stages["ttir"]
        stages.clear()
        stages["ttir"] = kept
        stages[BINARY] = lambda module, metadata: _binary(module, metadata, options)

    compiler.add_stages = add_stages


def _binary(module: Any, metadata: MutableMapping[str, Any], options: Any) -> bytes:
    """TTIR and options as bytes; the metadata gets what the stages that are left out would have noted."""
    text = str(module)
    name = metadata.get("name") or _public_name(text)
    metadata.update(name=name if " " in name else f"{name} aiv", shared=0, mix_mode="aiv")
    metadata.setdefault("tensor_kinds", [])
    told = {key: value for key, value in sorted(vars(options).items()) if key not in {"debug", "stream"}}
    return f"{text}\n// {told}\n".encode()


def _public_name(text: str) -> str:
    _before, found, after = text.partition("tt.func public @")
    return after.partition("(")[0] if found else "kernel"
