"""The base as an opponent: what is duelled, and how the two revisions are distinguished."""

from __future__ import annotations

from pathlib import Path

import pytest

from perfci.measure.bench import InseparableError, find_foreign_source, refuse_operators
from tests.measure.scripted import Scripted

OWN, OTHER = Path("/tmp/base"), Path("/home/me/head")


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ((), None),
        (("/tmp/base/kernels/a.py", "/tmp/base/b.py"), None),
        (("/usr/lib/library.py", "/tmp/base-of-another/a.py"), None),
        (("/tmp/base/a.py", "/home/me/head/kernels/a.py", "/home/me/head/b.py"), "/home/me/head/kernels/a.py"),
    ],
)
def test_a_launch_from_the_other_revisions_file_is_a_stranger(sources, found):
    assert find_foreign_source(sources, OWN, OTHER) == found


def test_operators_that_were_registered_since_are_refused():
    device = Scripted().device
    before = frozenset({"aten"})

    device.list_namespaces = lambda: before
    refuse_operators(device, before)

    device.list_namespaces = lambda: before | {"mine", "also"}
    with pytest.raises(InseparableError) as caught:
        refuse_operators(device, before)
    assert (caught.value.reason.kind, caught.value.reason.facts) == ("registers_operators", {"namespace": "also"})


@pytest.mark.torch
def test_what_torch_registers_by_itself_later_is_no_operator_of_the_ops():
    """In a separate process that has not used torch before."""
    import subprocess
    import sys

    code = (
        "from perfci.device.tensors import operator_namespaces as seen\n"
        "before = seen()\n"
        "import torch._dynamo\n"
        "assert seen() == before, sorted(seen() - before)\n"
        "import torch\n"
        "torch.library.define('perfci_test::double', '(Tensor x) -> Tensor')\n"
        "assert seen() - before == {'perfci_test'}\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
