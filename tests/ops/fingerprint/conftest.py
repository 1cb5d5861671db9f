"""Projects to take fingerprints of, written file by file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from perfci.ops.fingerprint.tree import Fingerprint, Tree

OP = "kernels/softmax/softmax_triton.py"

Write = Callable[[dict[str, str]], None]
Take = Callable[..., Fingerprint]


@pytest.fixture
def write(tmp_path) -> Write:
    """Write files of a project, by name and text; an op softmax is always there."""

    def write(texts: dict[str, str], root: Path = tmp_path) -> None:
        for name, text in texts.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)

    write({OP: "import torch\n"})
    return write


@pytest.fixture
def take(tmp_path) -> Take:
    """The fingerprint of an op of the project."""

    def take(op: str = "softmax", root: Path = tmp_path) -> Fingerprint:
        return Tree(root, root / "kernels").fingerprint(op)

    return take
