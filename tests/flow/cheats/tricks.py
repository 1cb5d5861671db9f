"""Sixty tricks of kernels that cheat, as told in tricks.yaml."""

from dataclasses import dataclass
from pathlib import Path

import yaml

WRONG, PASS, ERROR, SUSPECT = "WRONG", "PASS", "ERROR", "SUSPECT"


@dataclass(frozen=True)
class Trick:
    """One trick: what it does, its source, and the verdict that it has to get."""

    what: str
    source: str
    verdict: str = WRONG  # or several, if it depends on who is first
    shows: str = "wrong_values"  # kinds of the reasons that perfci may give for it on the fake device
    naive: bool = True  # a plain harness in one process takes it for right and fast


_READ = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
TRICKS = {name: Trick(**fields) for name, fields in _READ["tricks"].items()}
ON_TORCH = {name: Trick(**fields) for name, fields in _READ["on_torch"].items()}
"""Tricks by the same names, where one text cannot serve both. Their verdicts are those of Triton's interpreter."""


def _name_on_cuda(name: str) -> str:
    """What leaves its work to torch gets a kernel without any: torch would be faster in earnest than one that works."""
    return f"streaming_{name}" if name == "count_by_size" else name


ON_CUDA = {
    _name_on_cuda(name): ON_TORCH[name] if name in ON_TORCH and "@triton" not in ON_TORCH[name].source else trick
    for name, trick in TRICKS.items()
}
"""All of them for kernels in CUDA C++. Tricks that need a kernel of their own are in on_cuda.yaml."""
