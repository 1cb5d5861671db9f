"""NPUs that kernels are compiled for without one: to HIVM by ascendnpu-ir, else to TTIR, both without CANN."""

import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from perfci.core.model import Reason
from perfci.extensions.common.binaries import InstructionCounts
from perfci.extensions.common.targets import Target
from perfci.extensions.npu import hivm

ASCEND, BINARY = "ascend", "npubin"  # triton-ascend's folder among Triton's backends, and what its last stage makes


@dataclass(frozen=True)
class NpuTarget(Target):
    """An NPU. It has neither threads nor registers."""

    backend = "npu"
    warp_size = 0  # as triton-ascend's driver has it
    registers = 0

    @property
    def arch(self) -> str:
        """Ascend910B2 as the board."""
        return self.board

    @property
    def driver_facts(self) -> dict[str, int | str]:
        """The board's properties as triton-ascend's driver reports them."""
        return {"max_shared_mem": 1, "num_aicore": self.processors // 2, "num_vectorcore": self.processors}

    def prepare_compiler(self) -> None:
        """Have triton-ascend's compiler go on to HIVM if ascendnpu-ir is installed, and stop at TTIR if not."""
        from triton.backends import backends

        if hivm.find_folder() and has_compiler():
            hivm.install_stages(backends[ASCEND].compiler, self.board, BINARY)
        elif has_compiler():
            stop_at_ttir()

    def count(self, asm: Mapping[str, Any]) -> InstructionCounts | None:
        """On-chip memory, barriers and double buffers of a kernel that is lowered to HIVM."""
        return InstructionCounts({}, hivm.read_plan(asm[hivm.STAGE])) if hivm.find_folder() else None

    def explain_missing(self) -> Reason | None:
        """What of the compiler was not asked."""
        if hivm.find_folder():
            return Reason("npu_to_hivm", {"compiler": hivm.describe(), "target": self.name})
        return Reason("npu_to_ttir", {"target": self.name})

    def explain_no_compiler(self) -> Reason | None:
        """It is another Triton."""
        import triton

        facts = {"triton": triton.__version__, "target": self.name}
        return None if has_compiler() else Reason("captured_no_triton_ascend", facts)


# Vector cores and their memory (unified buffer): what bishengir has of each chip (`hacc.target_device_spec`), and
# triton-ascend's documentation. L2: what an Ascend 910B2 reports, taken for an Ascend 910_93 too, of which a process
# sees one half. Programs wait for a core, so that each is alone on it.
TARGETS = tuple(
    NpuTarget(name, board, (0, 0), cores, unified << 10, unified << 10, 1, 1, l2, shared_unit=32, shared_reserved=0)
    for name, board, cores, unified, l2 in (
        ("ascend910b2", "Ascend910B2", 48, 192, 192 << 20),
        ("ascend910b3", "Ascend910B3", 40, 192, 192 << 20),
        ("ascend910_93", "Ascend910_9382", 48, 192, 192 << 20),
        ("ascend950", "Ascend950PR_9589", 64, 248, 0),
    )
)


def has_compiler() -> bool:
    """Whether this Triton compiles for NPUs."""
    from triton.backends import backends

    return ASCEND in backends


def stop_at_ttir() -> None:
    """Have triton-ascend's compiler give TTIR in the binary's place, for the rest of the process's life."""
    from triton.backends import backends

    compiler = backends[ASCEND].compiler
    whole = compiler.add_stages

    def add_stages(self: Any, stages: MutableMapping[str, Any], options: Any, *more: Any) -> None:
        whole(self, stages, options, *more)
        kept = stages["ttir"]
        stages.clear()
        stages["ttir"] = kept
        stages[BINARY] = lambda module, metadata: _binary(module, metadata, options)

    compiler.add_stages = add_stages


def _binary(module: Any, metadata: MutableMapping[str, Any], options: Any) -> bytes:
    """TTIR and options as bytes. The metadata gets what the stages that are left out would have noted."""
    text = str(module)
    public = re.search(r"tt\.func public @([^(]*)", text)
    name = metadata.get("name") or (public[1] if public else "kernel")
    metadata.update(name=name if " " in name else f"{name} aiv", shared=0, mix_mode="aiv")
    metadata.setdefault("tensor_kinds", [])
    kept = {key: value for key, value in sorted(vars(options).items()) if key not in {"debug", "stream"}}
    return f"{text}\n// {kept}\n".encode()
