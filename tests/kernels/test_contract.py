import ast
from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
OPS = sorted(path.name for path in KERNELS.iterdir() if path.is_dir() and not path.name.startswith(("_", ".")))
PARTS = ("triton", "baseline", "accuracy", "performance")


def tree(op, part):
    return ast.parse((KERNELS / op / f"{op}_{part}.py").read_text(encoding="utf-8"))


def imported(op, part):
    for node in ast.walk(tree(op, part)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        if isinstance(node, ast.ImportFrom):
            yield node.module if node.module != op else f"{op}.{node.names[0].name}"


@pytest.mark.parametrize("op", OPS)
def test_kernel_and_reference_can_be_lifted_out(op):
    modules = {f"{op}.{path.stem}" for path in (KERNELS / op).glob("*.py")}
    others = {f"{other}.{other}_triton" for other in OPS}
    assert set(imported(op, "triton")) - modules - others <= {
        "functools",
        "pathlib",
        "typing",
        "_attention",
        "_fp8_blocks",
        "_launch",
        "_norm_backward",
        "_product",
        "_rows",
        "_symmetric",
        "_tiles",
        "_tma",
        "torch",
        "triton",
        "triton.language",
    }
    assert set(imported(op, "baseline")) <= {
        "torch", "torch.distributed", "_attention_reference", "_quant", "_scaling",
    }  # fmt: skip


@pytest.mark.parametrize("op", OPS)
def test_ops_take_of_each_other_the_public_function_alone(op):
    for node in ast.walk(tree(op, "triton")):
        other = node.module.partition(".")[0] if isinstance(node, ast.ImportFrom) and node.module else None
        if other in OPS and other != op:
            assert node.module == f"{other}.{other}_triton"
            assert [name.name for name in node.names] == [other]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("part", PARTS[2:])
def test_suites_build_one_object_and_run_by_path(op, part):
    *_, assignment, guard = tree(op, part).body

    assert ast.unparse(assignment).startswith(f"{part} = perfci.{part.title()}(")
    assert ast.unparse(guard) == f"if __name__ == '__main__':\n    perfci.main({part})"


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("part", PARTS)
def test_no_op_names_a_device(op, part):
    names = {str(node.value) for node in ast.walk(tree(op, part)) if isinstance(node, ast.Constant)}

    assert not names & {"cuda", "npu", "cpu"}


@pytest.mark.parametrize("op", OPS)
def test_the_jitted_kernel_has_a_name_of_its_own(op):
    jitted = [
        node.name
        for node in tree(op, "triton").body
        if isinstance(node, ast.FunctionDef) and any("triton.jit" in ast.unparse(mark) for mark in node.decorator_list)
    ]

    assert op not in jitted
    assert jitted or "_norm_backward" in imported(op, "triton")
