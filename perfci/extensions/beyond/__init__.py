"""What cases do not check: properties, and the smallest case that a wrong kernel fails. See docs/beyond-the-suites.md.

flow    ops looked at after a check, a worker for each
task    what such a worker is asked
work    its part
least   a wrong case, shrunk
lines   a case as lines of Python
properties   what a suite states beyond its cases
gradients        what autograd makes of an op
graphs cuda_graphs   calls captured, and replayed with other inputs
structure        sizes, strides, alignment and far places
repeats          the same call many times
sanitize         probe cases under sanitizers
formula          whether head, base and configurations compute the same, by Triton's fpsan
configurations   candidates of autotuners and entries of tuned files
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.beyond"

EXTENSION = Extension(
    provides={
        "beyond": (f"{HERE}.flow:look_on",),
        "properties": (f"{HERE}.properties:propose",),
        "stages": (f"{HERE}.stages:describe_stages",),
        "task": (f"{HERE}.task:LookBeyond",),
    },
)
