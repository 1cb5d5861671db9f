"""Compiles pointwise ops, norms, softmax, cross_entropy and rotary for an H200, by the cases of performance suites.

Prints the outcome of each launch as JSON. A separate process, since that process is useless for anything else.
"""

import functools
import importlib

from launches import print_report

OPS = ("vector_add", "gelu", "layer_norm", "rms_norm", "softmax", "cross_entropy", "add_rms_norm", "rotary")


def report_all():
    return [facts for op in OPS for facts in _launches(op)]


def _launches(op):
    import compile_offline

    import perfci

    suite = importlib.import_module(f"{op}_performance").performance
    for case in suite.cases:
        inputs = suite.make_inputs(**case, device="cuda", seed=0)
        for facts in compile_offline._facts(functools.partial(suite.kernel, **inputs)):
            yield {"op": op, "case": perfci.case_id(case), **facts}


if __name__ == "__main__":
    print_report(report_all, *OPS)
