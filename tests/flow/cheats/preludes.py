"""What stands above a trick in the file of its kernel, for numpy, Triton and CUDA C++, and the other files of its op.

The kernel is 2x + 1. All preludes have the same words, so that one text of a trick serves all:

honest, cheap   the kernel, and one that does a part of the work
known           one that is right for zeros alone
varied          the honest kernel with launches that are not the base's, so that it is timed
fill, compute   write the answer into memory by the library, and as the honest kernel does
work            claim a share of the honest kernel's time
spring          note that the trick is played
"""

from pathlib import Path

import yaml

_READ = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
NUMPY, TORCH = _READ["head"] + _READ["numpy"], _READ["head"] + _READ["triton"] + _READ["torch"]
_OF_DRIVER = yaml.safe_load(Path(__file__).with_name("on_cuda.yaml").read_text("utf-8"))["python"]
CUDA = _READ["head"] + _OF_DRIVER + _READ["cuda"] + _READ["torch"]
CALL, UNRECORDED, SUITE = (_READ[name] for name in ("call", "unrecorded", "suite"))
NUMPY_BASELINE, TORCH_BASELINE = _READ["numpy_baseline"], _READ["torch_baseline"]
