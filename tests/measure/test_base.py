"""The base as an opponent: what is duelled, and how the two revisions are distinguished."""

import ast
import re
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


def registered_by(folder: Path) -> set[str]:
    """Namespaces of operators that Python files define when they are imported, by what they say."""
    registered = set()
    for path in folder.rglob("*.py"):
        text = path.read_text(encoding="utf-8", errors="replace")
        if not re.search(r"custom_op|triton_op|Library\(", text):
            continue
        for call in (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and node.args):
            name, first = ast.unparse(call.func).split(".")[-1], call.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                namespace, parts, _ = first.value.partition("::")
                defines = name in {"custom_op", "triton_op"} and parts
                kinds = [arg.value for arg in call.args[1:2] if isinstance(arg, ast.Constant)]
                registered |= (
                    {namespace} if defines or (name == "Library" and kinds in (["DEF"], ["FRAGMENT"])) else set()
                )
    return registered


@pytest.mark.torch
@pytest.mark.nightly  # another torch alone can change it
def test_what_any_module_of_torch_registers_is_no_operator_of_the_ops():
    """An op or its reference may be the first to import it, such as torch.nn.attention.varlen."""
    import torch

    from perfci.device.tensors import operator_namespaces

    for_tests = {"_torch_testing", "testlib"}
    registered = registered_by(Path(torch.__file__).parent)

    assert len(registered) > 5
    assert sorted(registered - for_tests - operator_namespaces()) == []


@pytest.mark.nightly
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
