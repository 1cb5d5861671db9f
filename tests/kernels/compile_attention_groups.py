"""Compiles attention's groups of warps for an H200 without one, and prints what became of each launch as JSON.

A separate process, since that process is useless for anything else.
"""

import re

from launches import launched, print_report

CONFIGS = ((2, False, False), (3, True, False), (2, True, True))
"""stages, ahead, persistent; of others queries of a tile and keys of a block too, which are 128 here"""
CASES = (
    *((1024, 1024, 128, True, "bfloat16", config) for config in CONFIGS),
    (1024, 1024, 128, False, "bfloat16", CONFIGS[2]),
    (1024, 1100, 128, True, "bfloat16", CONFIGS[2]),
    (1024, 1100, 128, False, "bfloat16", CONFIGS[0]),
    (1000, 1000, 72, True, "float16", CONFIGS[0]),
    (1024, 1024, 256, True, "bfloat16", (2, True, True, 128, 64)),
    (1024, 1100, 200, False, "bfloat16", (2, True, True, 128, 64)),
    (1024, 1024, 64, True, "bfloat16", (4, True, True)),
    (1024, 1100, 40, True, "float16", (4, True, True, 192, 128)),
    (1024, 1024, 64, False, "bfloat16", (3, True, True, 192, 128)),
)


def report_all():
    return [_facts(*case) for case in CASES]


def _facts(queries, keys, width, causal, dtype, config):
    import attention_triton as module
    import torch

    shapes = (queries, keys, keys)
    q, k, v = (torch.empty((2, 4, rows, width), dtype=getattr(torch, dtype), device="cuda") for rows in shapes)
    stages, ahead, persistent, block_m, block_n = (*config, 128, 128)[:5]
    entry = module.Config(block_m, block_n, 4 + block_m // 16, stages, ahead=ahead, persistent=persistent)
    module.choose_config = lambda *_: entry
    module.choose_split = lambda *_: None
    ((launch, told, ptx, facts),) = launched(lambda: module.attention(q, k, v, causal=causal))
    return facts | {
        "groups": block_m // 64,
        "padded": module._launch.power_of_two(width),
        "block_n": block_n,
        "masks": 2 if causal and (block_n < 64 or (keys - queries) % block_n) else 1,
        "ahead": ahead,
        "persistent": persistent,
        "programs": told.grid[0],
        "warps": launch.kernel.metadata.num_warps,
        "products": len(re.findall(r"wgmma\.mma_async", ptx)),
        "waited_for": sorted(re.findall(r"wgmma\.wait_group\S*\s+(\d+)", ptx)),
        "exponentials": len(re.findall(r"ex2\.approx\.ftz\.f32", ptx)),
        "fused": len(re.findall(r"\bfma\.rn", ptx)),
        "copies": len(re.findall(r"cp\.async\.bulk\.tensor\.4d\.shared", ptx)),
    }


if __name__ == "__main__":
    print_report(report_all, "attention")
