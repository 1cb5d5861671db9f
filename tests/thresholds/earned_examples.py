"""Earned values, made to order."""

import dataclasses

from perfci.core.model import Device, Environment
from perfci.thresholds.earned import EarnedFile, read_file, write_earned
from perfci.thresholds.layers import Earned

KEY = "nvidia-h200"
CASE = "rows=4096,dtype=float16"
OTHER = "rows=7,dtype=float16"
HERE = Environment(
    Device("cuda", "NVIDIA H200", KEY, "GPU-1", "580.65", "CUDA 13.0", processors=132, power_limit_w=700.0),
    "activity", "3.11.9", {"torch": "2.11", "triton": "3.6"}, "runner", "Linux",
    variables={"CUBLAS_WORKSPACE_CONFIG": ":4096:8"},
)  # fmt: skip
THERE = dataclasses.replace(HERE, packages={"torch": "2.12", "triton": "3.6"})

RECORD = {
    "before": 0.01, "after": 0.0075, "bound": 0.0025, "began": 0.01, "predicted": 0.0001, "date": "2026-11-21",
    "runs": 24, "first": "run001", "last": "run024", "why": 'A/A duels: 24; "quiet": yes # really',
}  # fmt: skip


def earned(key="tau", value=0.0075, case=CASE, **record):
    return Earned(case, key, value, **{**RECORD, "after": value, **record})


def empty(path):
    return EarnedFile("softmax", KEY, path / KEY / "softmax.json")


def kept(path, *values, environment=HERE):
    """A file of these values, on disk."""
    file = empty(path)
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(write_earned(file, environment, values))
    return read(path)


def written(path, content):
    """The same of any content."""
    place = path / KEY / "softmax.json"
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())
    return place


def read(path):
    return read_file(path / KEY / "softmax.json", "softmax", KEY)


def understood(file, content):
    """Reads a content instead of the file's."""
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(content)
    return read_file(file.path, file.op, file.device)


def values(file):
    return {(value.case, value.key): value.value for value in file.values}
