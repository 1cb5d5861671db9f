"""Tensors that ops store in low precision: declared by an op, recorded, judged by limits. See docs/low-precision.md.

declared    an op's declaration, called for each case and checked
figures     the figures of one stored tensor, from host copies
advice      a tensor beside accepted runs and other ways to store it, and the likely cause of its errors
checks      what the gate asks for, and figures beyond their limits
tables      of the report and of `perfci show`
charts      of the errors
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.lowprec"

EXTENSION = Extension(
    provides={
        "stored": (f"{HERE}.checks:CHECKS",),
        "tables": (f"{HERE}.tables:make_parts",),
        "sections": (f"{HERE}.tables:read_sections",),
    }
)
