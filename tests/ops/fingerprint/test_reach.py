"""What a kernel's file reaches of a library is told from what the library's packages import."""

import ast
from pathlib import Path

from perfci.ops.fingerprint.reach import list_reached

FILES = {
    "lib/__init__.py": "from .ops import first, second\n",
    "lib/ops/__init__.py": "from .first import first\nfrom .second import second\n",
    "lib/ops/first.py": "from ..shared import HALF\n"
    "from . import helpers as h\ndef first(x):\n    return h.f(x, HALF)\n",
    "lib/ops/second.py": "from lib.shared import WHOLE\n\ndef second(x):\n    return x * WHOLE\n",
    "lib/ops/helpers.py": "import lib.deep.far\n\ndef f(x, y):\n    return lib.deep.far.g(x, y)\n",
    "lib/deep/far.py": "from lib.ops.first import first\n\ndef g(x, y):\n    return x * y\n",
    "lib/shared.py": "HALF = 2\nWHOLE = 4\n",
    "kernels/op/op_triton.py": "from lib.ops import first as source\n\ndef op(x):\n    return source(x)\n",
}


def test_a_package_that_imports_all_of_its_kernels_makes_none_reach_the_others(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)

    reached = list(list_reached(tmp_path / "kernels/op/op_triton.py"))

    names = {path.relative_to(tmp_path).as_posix() for path, _ in reached}
    assert names == {*FILES} - {"lib/__init__.py", "lib/ops/second.py"}
    (shared,) = (nodes for path, nodes in reached if path.name == "shared.py")
    assert [ast.unparse(node) for node in shared] == ["HALF = 2"]


def test_a_file_that_is_not_there_or_no_python_reaches_nothing(tmp_path):
    (tmp_path / "broken.py").write_text("def f(:\n")

    for name in ("broken.py", "missing.py"):
        assert [nodes for _, nodes in list_reached(Path(tmp_path / name))] == [()]
