"""Follows a sketch's test through its syntax, to see which inputs it gives to the kernel; runs none of it.

A small interpreter of what such tests do: constants, tuples and lists of them, loops over lists, helper functions,
parametrised tests, and tensors made by torch.randn and the like. A value that it cannot tell is UNKNOWN, and whatever
depends on it; nothing is imported, no attribute is looked up, no operator of foreign objects is called.

values         what a walk tells of: tensors, dtypes, calls, comparisons
limits         how far a test is followed
plain          operators, range, zip and the like, on plain values
tensors        torch's ways to make and change a tensor
comparisons    tolerances of allclose and the like
points         what parametrised tests are called with
expressions calls statements walker    the interpreter, each on top of the one before
"""

from perfci.scaffold.walking.comparisons import COMPARISONS
from perfci.scaffold.walking.limits import MOST_CALLS
from perfci.scaffold.walking.tensors import DTYPES
from perfci.scaffold.walking.values import MARK, Call, Comparison, Dtype, Marker, Tensor, Walk
from perfci.scaffold.walking.walker import walk

__all__ = [
    "COMPARISONS",
    "DTYPES",
    "MARK",
    "MOST_CALLS",
    "Call",
    "Comparison",
    "Dtype",
    "Marker",
    "Tensor",
    "Walk",
    "walk",
]
