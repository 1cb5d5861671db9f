"""A test is followed through its syntax: which tensors it makes, in which sizes, for which calls."""

from __future__ import annotations

import textwrap

import pytest

from perfci.scaffold.reading import read
from perfci.scaffold.walking import MOST_CALLS, Marker, Tensor, walk

HEAD = "import torch\nfrom op_triton import kernel\nfrom op_baseline import reference\n"


@pytest.fixture
def walked(tmp_path):
    (tmp_path / "op_triton.py").write_text("def kernel(x, y=None):\n    return x\n")
    (tmp_path / "op_baseline.py").write_text("ROWS = 7\ndef reference(x):\n    return x\n")
    others = {name: read(tmp_path / f"{name}.py") for name in ("op_triton", "op_baseline")}
    markers = {("op_triton", "kernel"): Marker("kernel"), ("op_baseline", "reference"): Marker("reference")}

    def walk_through(text: str, entry: str = "test_accuracy"):
        path = tmp_path / "test.py"
        path.write_text(HEAD + textwrap.dedent(text))
        return walk(read(path), entry, others, markers)

    return walk_through


def sizes(walk) -> list[tuple[tuple[int | str, ...], str]]:
    """Shape and dtype of each call's first tensor."""
    found = [call.arguments[0] for call in walk.calls]
    return [(tuple(one.sizes.get(name, name) for name in one.shape), one.dtype) for one in found]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("M, N = 3, 4\nkernel(torch.randn(M, N))", [((3, 4), "float32")]),
        ("N = 2 ** 4\nkernel(torch.randn((N,), dtype=torch.float16))", [((16,), "float16")]),
        ("for M, N in [(1, 2), (3, 4)]:\n    kernel(torch.rand(M, N))", [((1, 2), "float32"), ((3, 4), "float32")]),
        ("for N in range(2, 9, 4):\n    kernel(torch.ones(N))", [((2,), "float32"), ((6,), "float32")]),
        ("N = 8\nkernel(torch.zeros(N).cuda().half())", [((8,), "float16")]),
        ("N = 8\nx = torch.randn(N)\nkernel(torch.empty_like(x, dtype=torch.bfloat16))", [((8,), "bfloat16")]),
        ("N = 8\nx = torch.randn(N)\nfn = lambda: kernel(x)\n", [((8,), "float32")]),
        ("N = 8\nx = torch.randint(0, N, (N,))\nkernel(x)", [((8,), "int64")]),
        ("N = 8\nx = torch.randint(N, size=(N,))\nkernel(x=None, y=1) if False else kernel(x)", [((8,), "int64")]),
        ("N = 8\nx = torch.randn(N)\nfor _ in range(100):\n    kernel(x)", [((8,), "float32")]),
        ("M, N = 2, 3\nx = torch.randn(M, N).t()\nkernel(x)", [((3, 2), "float32")]),
    ],
)
def test_a_call_is_seen_with_its_tensor(walked, body, expected):
    text = "def test_accuracy():\n" + textwrap.indent(body, "    ")

    assert sizes(walked(text)) == expected


def test_helpers_defaults_and_modules_constants_are_followed(walked):
    found = walked(
        """
        import op_baseline
        def make(rows, cols=5):
            return torch.randn(rows, cols), None
        def test_accuracy(cols=6):
            rows = op_baseline.ROWS
            x, _ = make(rows, cols)
            kernel(x)
            kernel(make(rows)[0])
        """
    )

    assert sizes(found) == [((7, 6), "float32"), ((7, 5), "float32")]


def test_a_parametrised_test_is_followed_for_every_combination(walked):
    found = walked(
        """
        import pytest
        @pytest.mark.parametrize("M,N", [(1, 2), (3, 4)])
        @pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
        def test_accuracy(M, N, dtype):
            kernel(torch.randn(M, N, dtype=dtype))
        """
    )

    assert sorted(sizes(found)) == [
        ((1, 2), "float16"), ((1, 2), "float32"), ((3, 4), "float16"), ((3, 4), "float32"),
    ]  # fmt: skip


def test_without_the_function_the_file_itself_is_followed(walked):
    assert sizes(walked("N = 3\nif __name__ == '__main__':\n    kernel(torch.randn(N))\n")) == [((3,), "float32")]


def test_an_expression_of_tensors_and_numbers_keeps_its_text(walked):
    (call,) = walked("def test_accuracy():\n    N = 3\n    kernel((torch.randn(N) - torch.rand(N)) * 0.5 + 1)\n").calls

    (tensor,) = call.arguments
    assert isinstance(tensor, Tensor)
    assert tensor.text.count("generator=generator") == 2
    assert tensor.text.endswith("* 0.5) + 1)")


@pytest.mark.parametrize(
    "body",
    ["kernel(unknown())", "x = open('f').read()\nkernel(x)", "kernel(torch.load('x'))", "kernel(torch.randn(len(a)))"],
)
def test_what_cannot_be_told_is_no_tensor(walked, body):
    found = walked("def test_accuracy():\n" + textwrap.indent(body, "    "))

    assert not any(isinstance(each, Tensor) for call in found.calls for each in call.arguments)


@pytest.mark.parametrize(
    "body",
    [
        "for i in range(10 ** 9):\n    kernel(torch.randn(i))",
        "while True:\n    kernel(torch.randn(4))\n    test_accuracy()",
        "x = [i for i in range(400) for j in range(400)]\nfor i in x:\n    for j in x:\n        kernel(torch.randn(i))",
        "x = 9 ** 9 ** 9\nx = 1 << 10 ** 10\nx = [1] * 10 ** 12\nkernel(torch.randn(3))",
        "x = 'a'\nfor _i in range(99):\n    x = x + x\nkernel(torch.randn(3))",
        "x = [1]\nfor _i in range(99):\n    x = x + x\nkernel(torch.randn(3))",
    ],
)
def test_a_test_without_an_end_is_left_soon(walked, body):
    found = walked("def test_accuracy():\n" + textwrap.indent(body, "    "))

    assert len(found.calls) <= MOST_CALLS


def test_tolerances_are_told_with_the_dtype_of_the_call_before(walked):
    found = walked(
        """
        def test_accuracy():
            for dtype in (torch.float32, torch.float16):
                tol = 1e-5 if dtype == torch.float32 else 1e-2
                x = torch.randn(4, dtype=dtype)
                torch.testing.assert_close(kernel(x), reference(x), rtol=tol, atol=0)
                assert torch.allclose(kernel(x), reference(x))
        """
    )

    told = [(one.name, one.rtol, one.atol, one.dtype) for one in found.comparisons]
    assert told == [
        ("assert_close", 1e-5, 0.0, "float32"), ("allclose", 1e-5, 1e-8, "float32"),
        ("assert_close", 1e-2, 0.0, "float16"), ("allclose", 1e-5, 1e-8, "float16"),
    ]  # fmt: skip
