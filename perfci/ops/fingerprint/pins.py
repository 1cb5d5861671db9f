"""The versions of torch, Triton and the device's libraries that a project asks for, and whether they changed."""

import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from perfci.core.files import read_regular

PATTERNS = (
    ".gitlab-ci.yml", "constraints*.txt", "environment.y*ml", "poetry.lock", "pyproject.toml", "requirements*.txt",
    "requirements/*.txt", "uv.lock",
)  # fmt: skip
"""Files of a project's root that name what is installed."""

_TOOL = (
    r"torch([-_.]npu)?|triton([-_.]\w+)?|pytorch([-_.](triton[-_.\w]*|cuda))?"
    r"|(cuda|nvidia|cupy)[-_.][-_.\w]+|cuda(toolkit)?|cudnn|cupy|tilelang|helion|apache[-_.]tvm[-_.]ffi"
)
_PIN = re.compile(rf"(?:[\w-]+::)?(?P<name>{_TOOL})(?![-\w.])\s*(?:$|[\[=<>!~@;(\d].*)", re.IGNORECASE)
_INDEX = re.compile(
    r"--?(?:i|f|index-url|extra-index-url|find-links)\b.*(?:torch|cuda|triton|nvidia|ascend)", re.IGNORECASE
)
_IMAGE = re.compile(
    r"(?:image|name):\s*[\"']?(?P<image>[^\s\"']*(?:torch|cuda|triton|nvidia|cann|ascend|npu|rocm)[^\s\"']*)",
    re.IGNORECASE,
)
_LOCKED = re.compile(r'^name = "(.+)"\nversion = "(.+)"$', re.MULTILINE)


def pins_changed(root: Path, base_root: Path) -> tuple[str, ...]:
    """Returns each pin of the toolchain that differs: `requirements/cpu.txt: triton==3.7.1 -> triton==3.8.0`."""
    changes = []
    roots = [(folder, path) for folder in (root, base_root) for pattern in PATTERNS for path in folder.glob(pattern)]
    for file in sorted({path.relative_to(folder).as_posix() for folder, path in roots}):
        before, after = _read(base_root, file), _read(root, file)
        for name in sorted(before.keys() | after.keys()):
            gone, come = before[name] - after[name], after[name] - before[name]
            pairs = itertools.zip_longest(sorted(gone.elements()), sorted(come.elements()), fillvalue="nothing")
            changes += [f"{file}: {old} -> {new}" for old, new in pairs]
    return tuple(changes)


def _read(root: Path, file: str) -> defaultdict[str, Counter[str]]:
    """Counts the ways in which each package is pinned. Nothing for a file that is missing, or lies elsewhere."""
    pins: defaultdict[str, Counter[str]] = defaultdict(Counter)
    path = (root / file).resolve()
    is_there = path.is_file() and path.is_relative_to(root.resolve())
    text = read_regular(path).decode(errors="replace") if is_there else ""
    for pin in _list_pins(Path(file).name, text):
        match = _PIN.fullmatch(pin)
        pins[re.sub(r"[-_.]+", "-", match["name"].lower()) if match else ""][" ".join(pin.split())] += 1
    return pins


def _list_pins(file: str, text: str) -> Iterator[str]:
    if file.endswith(".lock"):
        locked = (f"{name}=={version}" for name, version in _LOCKED.findall(text))
        yield from filter(_PIN.fullmatch, locked)
    elif file == ".gitlab-ci.yml":
        lines = (line.strip().removeprefix("-").strip() for line in text.splitlines())
        yield from (image["image"] for line in lines if (image := _IMAGE.match(line)))
    else:  # requirements on separate lines, in quotes, or as keys such as poetry's: torch = "^2.6"
        for line in text.replace("\\\n", " ").splitlines():
            plain = re.split(r"(?:^|\s)#|\s--hash", line)[0].strip()
            if _INDEX.match(plain):
                yield plain
            items = (plain.removeprefix("- "), *re.findall(r"[\"']([^\"']*)[\"']", plain))
            yield from filter(_PIN.fullmatch, items)
