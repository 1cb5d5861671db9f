"""Compiles to TTIR, as triton-ascend does without CANN; what runs is the kernel's source."""

import functools
import hashlib
import re
from dataclasses import dataclass

from triton._C.libtriton import ir, passes
from triton.backends import compiler


@dataclass(frozen=True)
class NPUOptions:
    debug: bool = False
    sanitize_overflow: bool = True
    kernel_name: str = "triton_"
    num_warps: int = 4
    num_ctas: int = 1
    num_stages: int = 1
    warp_size: int = 32
    multibuffer: bool = True
    enable_fp_fusion: bool = True
    launch_cooperative_grid: bool = False
    supported_fp8_dtypes: tuple = ()
    deprecated_fp8_dot_operand_dtypes: tuple = ()
    default_dot_input_precision: str = "ieee"
    allowed_dot_input_precisions: tuple = ("ieee", "hf32")
    max_num_imprecise_acc_default: int = 0
    extern_libs: dict = None
    instrumentation_mode: str = ""
    ir_override: str = None
    backend_name: str = "npu"
    arch: str = ""

    def hash(self):
        return hashlib.sha256(repr(self).encode()).hexdigest()


class AscendBackend(compiler.BaseBackend):
    binary_ext = "npubin"

    @staticmethod
    def supports_target(target):
        return target.backend == "npu"

    def parse_options(self, opts):
        options = NPUOptions.__dataclass_fields__
        return NPUOptions(**{name: value for name, value in opts.items() if name in options and value is not None})

    def pack_metadata(self, metadata):
        return {"kernel_name": metadata.name.split()[0], "hash": metadata.hash, "debug": metadata.debug}

    def get_codegen_implementation(self, options):
        return {"min_dot_size": lambda left, right: (1, 1, 1)}

    def get_module_map(self):
        return {}

    def load_dialects(self, context):
        pass

    def add_stages(self, stages, options, language=None):
        stages["ttir"] = _ttir
        stages["npubin"] = lambda module, metadata: str(module).encode()

    @functools.lru_cache  # noqa: B019 - one of each target
    def hash(self):
        return f"stand-in-{self.target}"


def _ttir(module, metadata):
    manager = ir.pass_manager(module.context)
    for add in (
        passes.common.add_inliner,
        passes.ttir.add_combine,
        passes.common.add_canonicalizer,
        passes.ttir.add_reorder_broadcast,
        passes.common.add_cse,
        passes.common.add_symbol_dce,
        passes.ttir.add_loop_unroll,
    ):
        add(manager)
    manager.run(module, "make_ttir")
    metadata["shared"] = 1
    metadata["mix_mode"] = "aiv"
    metadata["name"] = re.search(r"tt\.func public @(\w+)", str(module)).group(1) + " aiv"
    return module
