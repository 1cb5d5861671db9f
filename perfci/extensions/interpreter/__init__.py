"""Triton's interpreter, corrected to compute what a GPU computes. Without it, the CPU's answers are Triton's.

corrected    the interpreter's methods that are replaced
arithmetic   what they compute with, and CUDA's libdevice
"""

from perfci.core.extensions import Extension

EXTENSION = Extension(provides={"interpreter": ("perfci.extensions.interpreter.corrected:correct",)})
