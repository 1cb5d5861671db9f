"""Which files an op needs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.core.files import read_regular
from perfci.core.wording import catalogue, sentence
from perfci.ops.fingerprint import tree as tree_module
from perfci.ops.fingerprint.tree import Tree

OP = "kernels/softmax/softmax_triton.py"


def others(fingerprint) -> set[str]:
    """The files but the op's one."""
    return fingerprint.files.keys() - {OP}


def refused(fingerprint, kind: str, **facts: object) -> None:
    """Opaque for this reason, with a sentence that has all its facts."""
    assert fingerprint.opaque is not None
    assert fingerprint.opaque.kind == kind
    assert kind in catalogue()
    assert " - " not in sentence(fingerprint.opaque)
    assert {name: fingerprint.opaque.facts[name] for name in facts} == facts


# --- the op's files -----------------------------------------------------------------------------------------------


def test_every_file_of_the_ops_folder_counts(write, take):
    files = {"kernels/softmax/tuned/nvidia-h200.json", "kernels/softmax/notes.md", "kernels/softmax/deep/x.cu"}
    write(dict.fromkeys(files, ""))

    assert others(take()) == files


def test_a_page_about_the_op_and_its_logbook_count_only_if_its_code_names_them(write, take):
    write({"kernels/softmax/softmax.md": "", "kernels/softmax/optimization.jsonl": ""})
    unnamed = others(take())

    write({"kernels/softmax/softmax_triton.py": 'open("optimization.jsonl")'})

    assert unnamed == set()
    assert "kernels/softmax/optimization.jsonl" in take().files


CACHED = ["__pycache__/softmax_triton.cpython-311.pyc", "deep/__pycache__/x.cpython-311.opt-1.pyc.140234"]


@pytest.mark.parametrize("name", CACHED)
def test_what_python_caches_does_not_count_since_no_worker_reads_it(write, take, name):
    before = take()
    write({f"kernels/softmax/{name}": "x = 1"})

    assert take().same_as(before)


READABLE = [
    ".hidden.py",
    ".hidden/tile.json",
    ".softmax_triton.py.swp",
    "softmax_triton.py~",
    "softmax_triton.py.orig",
    "tuned/a.json.rej",
    "#softmax_triton.py#",
    "__pycache__/tile.json",
    "softmax_tiles.pyc",
]


@pytest.mark.parametrize("name", READABLE)
def test_whatever_else_the_op_could_read_counts_whatever_its_name(write, take, name):
    write({f"kernels/softmax/{name}": "x = 1"})
    before = take()
    write({f"kernels/softmax/{name}": "x = 2"})

    assert before.changed_files(take()) == (f"kernels/softmax/{name}",)
    assert not take().same_as(before)


def test_a_file_that_goes_while_it_is_looked_at_stops_nothing(write, tmp_path):
    write({"kernels/softmax/.x.swp": ""})
    tree = Tree(tmp_path, tmp_path / "kernels")
    assert list(tree._finder.below(str(tmp_path / "kernels" / "softmax"), hidden=True))  # each folder is read once
    (tmp_path / "kernels" / "softmax" / ".x.swp").unlink()

    assert tree.fingerprint("softmax").files["kernels/softmax/.x.swp"] == "gone"


def test_changed_new_and_deleted_files_are_seen_and_named(write, take, tmp_path):
    write({"kernels/softmax/tuned/a.json": "1", "kernels/softmax/gone.json": ""})
    before = take()
    write({"kernels/softmax/tuned/a.json": "2", "kernels/softmax/new.json": ""})
    (tmp_path / "kernels/softmax/gone.json").unlink()

    after = take()
    assert not after.same_as(before)
    assert after.changed_files(before) == (
        "kernels/softmax/gone.json",
        "kernels/softmax/new.json",
        "kernels/softmax/tuned/a.json",
    )


def test_an_op_that_the_tree_lacks_is_never_the_same(take):
    refused(take("gone"), "op_not_in_tree", op="gone", folder="kernels")
    assert not take("gone").same_as(take("gone"))


# --- what it imports --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "files"),
    [
        ("import _launch", {"kernels/_launch.py"}),
        ("from _launch import grid", {"kernels/_launch.py"}),
        ("from _launch import *", {"kernels/_launch.py"}),
        ("import lib.tiles", {"src/lib/__init__.py", "src/lib/tiles.py"}),
        ("from lib import LIMIT", {"src/lib/__init__.py"}),
        ("from lib.tiles import power", {"src/lib/__init__.py", "src/lib/tiles.py"}),
        ("from lib import *", {"src/lib/__init__.py", "src/lib/tiles.py", "src/lib/deep/__init__.py"}),
        ("import lib.deep.inner", {"src/lib/__init__.py", "src/lib/deep/__init__.py", "src/lib/deep/inner.py"}),
        ("import lib.missing", {"src/lib/__init__.py"}),
        ("import space.part", {"src/space/part.py"}),
        ("import space", set()),
        ("import torch, numpy.linalg, json", set()),
        ("import installed", {"python/installed.py"}),
        ("try:\n    import _launch\nexcept ImportError:\n    _launch = None", {"kernels/_launch.py"}),
        ("def f():\n    import _launch", {"kernels/_launch.py"}),
        ("import importlib\nimportlib.import_module('_launch')", {"kernels/_launch.py"}),
        ("from importlib import import_module as load\nload('lib.tiles')", {"src/lib/__init__.py", "src/lib/tiles.py"}),
        ("__import__('_launch')", {"kernels/_launch.py"}),
    ],
)
def test_what_the_op_imports_counts(write, take, statement, files):
    write(
        {
            OP: statement,
            "kernels/_launch.py": "",
            "kernels/_unused.py": "",
            "helpers.py": "",
            "unused.py": "",
            "src/lib/__init__.py": "",
            "src/lib/tiles.py": "",
            "src/lib/deep/__init__.py": "",
            "src/lib/deep/inner.py": "",
            "src/space/part.py": "",
            "python/installed.py": "",
        }
    )

    fingerprint = take()

    assert fingerprint.opaque is None
    assert others(fingerprint) == files


@pytest.mark.parametrize(
    ("statement", "files"),
    [
        ("from . import beside", {"lib/deep/beside.py", "lib/deep/__init__.py"}),
        ("from .beside import x", {"lib/deep/beside.py"}),
        ("from .. import above", {"lib/above.py"}),
        ("from ..above import x", {"lib/above.py"}),
        ("from ..other.far import x", {"lib/other/__init__.py", "lib/other/far.py"}),
        ("from . import *", {"lib/deep/beside.py"}),
        ("from ...... import nowhere", set()),
    ],
)
def test_relative_imports_are_followed(write, take, statement, files):
    usual = {"lib/__init__.py", "lib/deep/__init__.py", "lib/deep/start.py"}
    write({OP: "import lib.deep.start", "lib/deep/start.py": statement})
    write(
        dict.fromkeys(
            (usual | {"lib/deep/beside.py", "lib/above.py", "lib/other/__init__.py"}) - {"lib/deep/start.py"}, ""
        )
    )
    write({"lib/other/far.py": ""})

    assert others(take()) == usual | files


def test_a_package_hides_a_module_and_a_namespace_of_its_name(write, take):
    write({OP: "import a.inner, b.inner", "kernels/a/x.json": "", "a/__init__.py": "", "a/inner.py": "", "a.py": ""})
    write({"b/inner.py": "", "src/b/inner.py": ""})

    assert others(take()) == {"a/__init__.py", "a/inner.py", "b/inner.py", "kernels/a/x.json"}


def test_perfci_itself_is_no_part_of_an_op(write, take):
    """Both revisions are looked at by one perfci, also in its repository."""
    write({OP: "import perfci", "perfci/__init__.py": "import perfci.secret", "perfci/secret.py": "exec(input())"})

    fingerprint = take()

    assert others(fingerprint) == set()
    assert fingerprint.opaque is None


@pytest.mark.parametrize(
    "texts",
    [
        {OP: "import _a\nfrom lib import x, deep", "kernels/_a.py": "import b", "b.py": "", "lib/__init__.py": "x = 1",
         "lib/deep/__init__.py": "from . import far\nfrom ..y import z", "lib/deep/far.py": "", "lib/y.py": "z = 1"},
        {OP: "from lib import *", "src/lib/__init__.py": "__all__ = ['m']", "src/lib/m.py": "import n", "src/n.py": ""},
        {OP: "import space.a, space.b.c", "space/a.py": "", "src/space/b/c.py": "from space import a", "b.py": ""},
        {OP: "import m", "kernels/softmax/m.py": "import k", "kernels/m.py": "", "k/__init__.py": "", "src/k.py": ""},
        {OP: "import other.other_triton as o", "kernels/other/other_triton.py": "import _s", "kernels/_s.py": ""},
    ],
)  # fmt: skip
def test_every_file_that_python_really_imports_counts(write, take, tmp_path, texts):
    write(texts)
    folders = [str(tmp_path / name) for name in ("kernels/softmax", "kernels", ".", "src")]
    code = (
        f"import sys; sys.path[:0] = {folders}; import softmax_triton\n"
        "print(*[m.__file__ for m in sys.modules.values() if getattr(m, '__file__', None)], sep='\\n')"
    )
    command = [sys.executable, "-S", "-B", "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout.splitlines()
    real = {os.path.relpath(path, tmp_path) for path in loaded if Path(path).is_relative_to(tmp_path)}

    assert len(real) > 2
    assert real <= take().files.keys()


# --- files that are no Python -----------------------------------------------------------------------------------------


def test_what_ops_share_in_the_kernels_folder_counts_for_each(write, take):
    files = {"kernels/_devices/a.json", "kernels/_devices/deep/b.json", "kernels/table.csv", "kernels/group/c.txt"}
    files |= {"kernels/_devices/.c.json", "kernels/.d.json"}
    write(dict.fromkeys(files, ""))
    write({"kernels/matmul/matmul_triton.py": "", "kernels/matmul/tuned/a.json": "", "kernels/README.md": ""})
    write({"kernels/_devices/__pycache__/x.pyc": "", "kernels/.hidden/y": ""})

    assert others(take()) == files


@pytest.mark.parametrize(
    "code",
    [
        "open('data/limits.json')",
        "from pathlib import Path\n(Path(__file__).parents[2] / 'data' / 'limits.json').read_text()",
        "from pathlib import Path\n(Path(__file__).parents[2] / 'data').glob('*')",
        "import os\nopen(os.path.join(os.path.dirname(__file__), '..', '..', 'data', 'limits.json'))",
        "from pathlib import Path\nPath(__file__).parent.parent.parent.joinpath('data', 'limits.json')",
    ],
)
def test_a_file_that_the_code_names_counts(write, take, code):
    write({OP: code, "data/limits.json": "", "unnamed.json": ""})

    assert others(take()) == {"data/limits.json"}


# --- late imports -----------------------------------------------------------------------------------------------------


def test_imports_of_the_project_inside_functions_are_told(write, take):
    code = """\
import _a, importlib

class C:
    import _b

    def method(self):
        from lib import c
        import torch
        from . import nothing

def f():
    def inner():
        importlib.import_module("_a")
    return lambda: __import__("_b")
"""
    write({OP: code, "kernels/_a.py": "async def g():\n    from _b import x", "kernels/_b.py": "", "lib/c.py": ""})

    assert take().late_imports == (
        "kernels/_a.py:2 _b",
        f"{OP}:13 _a",
        f"{OP}:14 _b",
        f"{OP}:7 lib",
    )


def test_late_imports_of_what_only_the_kernel_needs_are_none_of_the_suites(write, take):
    """As a library does that loads its backends when they are called."""
    reference, suite = (OP.replace("_triton", name) for name in ("_baseline", "_accuracy"))
    lazy = "def load():\n    import lib.b"
    write({OP: "import lib.a", reference: "", suite: "import softmax_baseline, softmax_triton",
           "lib/a.py": lazy, "lib/b.py": ""})  # fmt: skip
    assert (take().late_imports, take().late_in_suites) == (("lib/a.py:2 lib.b",), ())

    write({reference: "import lib.a"})
    assert take().late_in_suites == ("lib/a.py:2 lib.b",)


def test_code_of_a_library_that_only_the_kernel_needs_is_the_kernels(write, take):
    """So that suites are the base's although the library changes that they test."""
    baseline, suite = (OP.replace("_triton", name) for name in ("_baseline", "_accuracy"))
    write({OP: "import lib.a, _launch", baseline: "", suite: "import softmax_baseline, softmax_triton",
           "lib/a.py": "import lib.b", "lib/b.py": "", "kernels/_launch.py": ""})  # fmt: skip
    assert take().of_kernel == {"lib/a.py", "lib/b.py"}

    write({baseline: "import lib.b"})
    assert take().of_kernel == {"lib/a.py"}

    write({baseline: "import lib.b\nimport importlib\nimportlib.import_module(NAME)"})
    assert take().of_kernel == frozenset()


# --- what cannot be known ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import importlib\nname = 'x'\nimportlib.import_module(name)", "importlib.import_module"),
        ("import importlib as i\n\ni.import_module('.x', package='y')", "importlib.import_module"),
        ("from importlib import import_module\n\nlazy = import_module", "importlib.import_module"),
        ("\n\n__import__(f'_{1}')", "__import__"),
        ("import builtins\n\nbuiltins.exec(open('x').read())", "builtins.exec"),
        ("\n\nexec(open('x').read())", "exec"),
        ("\n\neval(text)", "eval"),
        ("\n\nlist(map(eval, texts))", "eval"),
        ("import runpy\n\nrunpy.run_path('x.py')", "runpy.run_path"),
        ("import sys\n\nsys.path.insert(0, folder)", "sys.path"),
        ("import sys as s\n\np = s.path", "sys.path"),
        ("import sys\n\nsys.meta_path.append(x)", "sys.meta_path"),
        ("import pkgutil\n\npkgutil.walk_packages(['x'])", "pkgutil.walk_packages"),
        ("from importlib.util import spec_from_file_location as s\n\ns('x', 'y')", "importlib.util.spec_from_file"),
        ("def f():\n    import importlib.machinery\n    importlib.machinery.SourceFileLoader", "importlib.machinery"),
        ("\n\nfrom importlib import *", "from importlib import *"),
    ],
)  # fmt: skip
def test_code_that_chooses_what_it_loads_is_opaque(write, take, code, what):
    write({OP: code})

    fingerprint = take()

    refused(fingerprint, "imports_unknown", file=OP, line=3)
    assert str(fingerprint.opaque.facts["what"]).startswith(what)
    assert not fingerprint.same_as(fingerprint)


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("from torch.utils.cpp_extension import load\n\nload('x', ['x.cu'])", "torch.utils.cpp_extension.load"),
        ("import torch\n\ntorch.ops.load_library(path)", "torch.ops.load_library"),
        ("import ctypes\n\nctypes.CDLL(path)", "ctypes.CDLL"),
        ("import ctypes\n\nctypes.CDLL('build/libscale.so')", "ctypes.CDLL"),
    ],
)
def test_code_that_brings_compiled_code_is_opaque(write, take, code, what):
    write({OP: code})

    fingerprint = take()

    refused(fingerprint, "native_unknown", file=OP, line=3)
    assert str(fingerprint.opaque.facts["what"]).startswith(what)


@pytest.mark.parametrize("name", ['"scale.cuh"', "<mine/scale.cuh>", '"../mine/scale.cuh"'])
@pytest.mark.parametrize("where", ["csrc/scale.cu", OP])
def test_headers_that_cpp_includes_count_with_what_they_include(write, take, name, where):
    files = {OP: 'source = "csrc/scale.cu"', "csrc/scale.cu": ""}
    include = f"  #  include {name}\n"
    files[where] += f'\n"""\n{include}"""' if where == OP else include
    headers = {"mine/scale.cuh": "#include <deep.h>\n#include <cuda_fp16.h>", "include/deep.h": ""}
    write({**files, **headers, "include/other.h": ""})

    assert others(take()) - {"csrc/scale.cu"} == headers.keys()


@pytest.mark.parametrize(
    "include",
    [
        '/* one */ #/* two */include "scale.txt"',
        '%:include "scale.txt"',
        '#in\\\nclude "scale.txt"',
        'const char* text = "/*";\n#include "scale.txt"',
        '#import "scale.txt"',
    ],
)
def test_a_header_counts_however_it_is_included_and_named(write, take, include):
    write({OP: 'source = "csrc/scale.cu"', "csrc/scale.cu": include, "mine/scale.txt": ""})

    assert others(take()) == {"csrc/scale.cu", "mine/scale.txt"}


def test_a_file_that_an_option_of_a_compiler_names_counts(write, take):
    write({OP: 'options = ("-O3", "--pre-include=mine/scale.cuh")', "mine/scale.cuh": ""})

    assert others(take()) == {"mine/scale.cuh"}


def test_a_header_that_a_macro_names_makes_it_opaque(write, take):
    write({"kernels/softmax/softmax.cu": '#include "a.h"\n#include HEADER\n'})

    refused(take(), "native_unknown", file="kernels/softmax/softmax.cu", line=2, what="#include")


@pytest.mark.parametrize(
    "code",
    [
        "import ctypes\nctypes.PyDLL('libcuda.so.1'), ctypes.CDLL('libnvrtc.so')",
        "model.eval()",
        "import torch\ntorch.compile(x)\ntorch.ops.aten.add",
        "import sys\nsys.argv, sys.modules, sys.platform",
        "import importlib.util\nimportlib.util.find_spec('torch')",
        "import importlib.metadata\nimportlib.metadata.version('triton')",
        "imp = 1\nimp.x",
        "from re import *",
        '"""It says \\d."""',
        "",
    ],
)
def test_ordinary_code_is_not_opaque(write, take, code):
    write({OP: code})

    fingerprint = take()

    assert fingerprint.opaque is None
    assert fingerprint.same_as(fingerprint)


@pytest.mark.parametrize("name", ["_fast.cpython-311-x86_64-linux-gnu.so", "_fast.abi3.so", "_fast.so", "_fast.pyc"])
@pytest.mark.parametrize("folder", ["kernels", "kernels/softmax", "src"])
def test_a_compiled_module_is_opaque_and_counts(write, take, name, folder):
    write({OP: "import _fast", f"{folder}/{name}": "binary"})

    fingerprint = take()

    refused(fingerprint, "module_compiled", file=f"{folder}/{name}")
    assert f"{folder}/{name}" in fingerprint.files


def test_a_file_that_is_no_python_is_opaque(write, take, tmp_path):
    write({OP: "import torch\ndef f(:\n"})
    refused(take(), "syntax_error", file=OP, line=2)

    (tmp_path / OP).write_bytes(b"x = '\0'")
    assert take().opaque is not None

    (tmp_path / OP).write_bytes(b"x = 'caf\xe9'\n")
    refused(take(), "syntax_error", file=OP)

    (tmp_path / OP).write_text("(" * 5000 + ")" * 5000)
    assert take().opaque is not None


# --- odd files --------------------------------------------------------------------------------------------------------


def test_links_in_a_circle_and_into_nothing_end(write, take, tmp_path):
    (tmp_path / "kernels/softmax/circle").symlink_to(".")
    (tmp_path / "kernels/softmax/up").symlink_to("..")
    (tmp_path / "kernels/softmax/nowhere.json").symlink_to("missing")
    (tmp_path / "kernels/softmax/nowhere.py").symlink_to("missing.py")
    before = take()
    (tmp_path / "kernels/softmax/nowhere.json").unlink()
    (tmp_path / "kernels/softmax/nowhere.json").symlink_to("missing too")

    assert "kernels/softmax/nowhere.json" in take().changed_files(before)


def test_a_link_to_a_folder_outside_may_lead_to_any_file_and_is_not_followed(tmp_path, write, take):
    write({})
    (tmp_path / "kernels/softmax/all").symlink_to("/")

    refused(take(), "folder_elsewhere", file="kernels/softmax/all")


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_a_file_that_cannot_be_read_is_opaque(write, take, tmp_path):
    (tmp_path / OP).chmod(0)

    refused(take(), "source_unreadable", file=OP)


# --- many ops ---------------------------------------------------------------------------------------------------------


def test_a_tree_reads_what_ops_share_once(write, tmp_path, monkeypatch):
    shared = "kernels/_launch.py"
    write({f"kernels/op{number}/op{number}_triton.py": f"import _launch\nx = {number}" for number in range(20)})
    write({shared: "", "kernels/_devices/a.json": ""})
    tree = Tree(tmp_path, tmp_path / "kernels")
    first = tree.fingerprint("op0")
    read: list[str] = []
    monkeypatch.setattr(tree_module, "read_regular", lambda path: (read.append(path.name), read_regular(path))[1])

    fingerprints = [tree.fingerprint(f"op{number}") for number in range(20)]

    assert fingerprints[0] == first
    assert len({fingerprint.digest for fingerprint in fingerprints}) == 20
    assert sorted(read) == sorted(f"op{number}_triton.py" for number in range(1, 20))
