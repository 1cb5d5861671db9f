"""Triton's interpreter, corrected to compute what a GPU computes, and watched. Without it the answers are Triton's.

corrected    the interpreter's methods that are replaced
arithmetic   what they compute with, and CUDA's libdevice
races        races of the programs of a launch
bounds       how long calls may take
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.interpreter"

EXTENSION = Extension(
    provides={
        "interpreter": (f"{HERE}.corrected:correct",),
        "races": (f"{HERE}.races:watch_races",),
        "bound": (f"{HERE}.bounds:bound_calls",),
    }
)
