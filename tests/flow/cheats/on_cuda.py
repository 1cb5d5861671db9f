"""Kernels in CUDA C++ that cheat, as told in on_cuda.yaml, and some that are fair, which have to be called right."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

KERNELS = Path(__file__).resolve().parents[3] / "kernels"


@dataclass(frozen=True)
class CudaTrick:
    """One trick: what it does, its Python, the end of its .cu file, and the verdicts that are expected."""

    what: str
    source: str
    cuda: str = ""
    verdict: str = "WRONG"
    mask: str = ""  # what MASK stands for in its .cu file
    linked: bool = False  # its .cu file is compiled for linking
    may_fall_short: bool = False  # of a fair kernel: its call may be one that cannot be repeated


_READ = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))
FAIR = {name: CudaTrick(**({"verdict": "PASS UNCHANGED"} | fields)) for name, fields in _READ["fair"].items()}
TRICKS = {name: CudaTrick(**fields) for name, fields in _READ["tricks"].items()}
PRELUDE = _READ["python"]


def list_files(op: str, cheats: bool) -> Mapping[str, str]:
    """The .cu file of an op, which has its trick if it cheats, and the helper that compiles and launches it."""
    trick = (FAIR | TRICKS).get(op) if cheats else None
    source = _READ["cuda"] + "\n" + (trick.cuda.replace("MASK", trick.mask) if trick else "")
    return {f"{op}/{op}.cu": source, "_cuda.py": (KERNELS / "_cuda.py").read_text()}
