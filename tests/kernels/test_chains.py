"""What every chain of the project keeps to, read from its source."""

import ast
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
CHAINS = sorted((KERNELS / "_chains").glob("*_chain.py"))
OPS = {path.name for path in KERNELS.iterdir() if path.is_dir() and path.name[0] not in "_."}


@pytest.fixture(params=CHAINS, ids=lambda path: path.stem)
def tree(request):
    return ast.parse(request.param.read_text(encoding="utf-8"))


def test_a_chain_builds_one_object_and_runs_by_its_path(tree):
    *_, assignment, guard = tree.body

    assert ast.unparse(assignment).startswith("chain = perfci.Chain(")
    assert ast.unparse(guard) == "if __name__ == '__main__':\n    perfci.main(chain)"


def test_a_chain_takes_of_each_op_the_public_function_alone(tree):
    taken = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]

    assert len(taken) >= 2
    for node in taken:
        op, _, module = node.module.partition(".")
        assert op in OPS
        assert module in {f"{op}_triton", f"{op}_baseline"}
        assert [name.name for name in node.names] == [op]


def test_no_chain_names_a_device(tree):
    names = {str(node.value) for node in ast.walk(tree) if isinstance(node, ast.Constant)}

    assert not names & {"cuda", "npu", "cpu"}
