"""Compiles all but products and convolutions for an H200, by the cases of performance suites.

Prints the outcome of each launch as JSON. A separate process, since that process is useless for anything else.
"""

import functools
import importlib
import re

from launches import launched, print_report

OPS = (
    "broadcast", "bias_relu", "vector_add", "gelu", "layer_norm", "rms_norm", "softmax", "cross_entropy",
    "add_rms_norm", "rotary",
)  # fmt: skip


def report_all():
    return [facts for op in OPS for facts in _launches(op)]


def _launches(op):
    import perfci

    suite = importlib.import_module(f"{op}_performance").performance
    for case in suite.cases:
        inputs = suite.make_inputs(**case, device="cuda", seed=0)
        for facts in _facts(functools.partial(suite.kernel, **inputs)):
            yield {"op": op, "case": perfci.case_id(case), **facts}


def _facts(call):
    for _, told, ptx, facts in launched(call):
        yield facts | {
            "binary": told.artefact,
            "warps": told.warps,
            "loads": _widths(ptx, r"ld\.global\S*"),
            "stores": _widths(ptx, r"st\.global\S*"),
            "copies": sorted(set(re.findall(r"cp\.async\.c[ag]\.\S+ \[.*?\], \[.*?\], (\w+)", ptx))),
        }


def _widths(ptx, instruction):
    """Bytes a thread of every such access, each once."""
    widths = set()
    for text in re.findall(instruction, ptx):
        vector, bits = re.search(r"\.v(\d)", text), re.search(r"\.[bfsu](\d+)", text)
        widths.add(int(vector[1] if vector else 1) * int(bits[1]) // 8)
    return sorted(widths)


if __name__ == "__main__":
    print_report(report_all, *OPS)
