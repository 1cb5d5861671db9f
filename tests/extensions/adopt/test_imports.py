"""Libraries that ask for a GPU when they are imported become ops without one, and their checks run."""

import ast
import sys
import textwrap
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import settings
from perfci.extensions.adopt.files import find_files
from perfci.extensions.adopt.place import place_op, write_draft
from perfci.extensions.adopt.rehearsal import sketched
from perfci.extensions.adopt.sketch import SketchFiles, draft
from perfci.measure.search import BLOCKS
from tests.extensions.adopt.rehearsing import interpreted, rehearse

KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def _kernel(x_ptr, out_ptr, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + at, tl.load(x_ptr + at, mask=at < size) * 2, mask=at < size)


def double(x: torch.Tensor):
    out = torch.empty_like(x)
    _kernel[(triton.cdiv(x.numel(), 128),)](x, out, x.numel(), BLOCK=128)
    return out
"""

ENTRY = """
class Buffer:
    def __init__(self, base):
        self._base, self.dtype, self.shape = base, base.dtype, base.shape

    def data_ptr(self):
        return self._base.data_ptr()


class Entry:
    def __init__(self, kernel):
        assert isinstance(kernel, triton.runtime.JITFunction)
        self.kernel, self.kept = kernel, {}
        self.constants = [one.name for one in kernel.params if one.is_constexpr]

    def launch(self, x, out, size, grid, **constants):
        assert [*constants] == self.constants
        key = (x.dtype, size)
        if key in self.kept:
            return self.kept[key][grid](x, out, size)
        self.kept[key] = self.kernel.run(x, out, size, grid=grid, warmup=False, **constants)


_entry = Entry(_kernel)


def double(x: torch.Tensor):
    out = torch.empty_like(x)
    with torch.cuda._DeviceGuard(x.device.index):
        _entry.launch(Buffer(x.clone()), Buffer(out), x.numel(), (triton.cdiv(x.numel(), 128),), BLOCK=128)
    return out
"""
"""A library that keeps what a launch gave and launches it again, with tensors of its own, as FlagGems does."""

INITS = {
    "properties": "import torch\nMANY = torch.cuda.get_device_properties(0).multi_processor_count + 1\n",
    "registers": """
        import torch
        LIBRARY = torch.library.Library("registers", "DEF")
        LIBRARY.define("double(Tensor x) -> Tensor")
        MANY = torch.cuda.get_device_properties(0).multi_processor_count
    """,
    "target": "import triton\nARCH = 80 <= triton.runtime.driver.active.get_current_target().arch\n",
    "vendor": """
        import subprocess
        import torch
        assert not hasattr(torch, "npu"), "an Ascend NPU was seen"
        assert subprocess.run(["nvidia-smi"], capture_output=True).returncode == 0
        table = torch.zeros(4, device="cuda")
    """,
    "compiler": "import torch\nimport torch._dynamo.config\nLIMIT = int(torch._dynamo.config.cache_size_limit)\n",
    "compiled": "import not_built_here  # an extension in C++, which the function does not need\n",
}
"""What a package asks when it is imported."""

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    (tmp_path / "kernels").mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (tmp_path / "ref.py").write_text("def double(x):\n    return x * 2\n")
    for name, text in INITS.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text(textwrap.dedent(text))
        (tmp_path / name / "op.py").write_text(KERNEL + ENTRY * (name == "vendor"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("names", [("registers", "compiled"), pytest.param(tuple(INITS), marks=pytest.mark.nightly)])
def test_packages_that_ask_for_a_gpu_when_they_are_imported_are_brought_in_and_checked(project, names):
    for name in names:
        op = f"of_{name}"
        files = find_files(f"{name}.op:double", "ref.py:double", settings.load(project), op=op)
        sketch = rehearse({op: (op, files)})[op]  # a process each
        assert sketch.is_ready
        made = draft(op, sketch, [])
        write_draft(place_op(op, project / "kernels", {}), made)
        text = made.texts["triton"]
        assert ("_sketched.pretend(" in text) == (name not in {"compiler", "compiled"})
        assert ("_sketched.leave_out(" in text) == (name == "compiled")

    told = interpreted(project, "dtype=float32", *(f"of_{name}" for name in names))
    assert {op: failures for op, (_, failures) in told.items() if failures} == {}
    assert all(checks > 10 for checks, _ in told.values())


@pytest.mark.nightly
def test_a_reference_of_a_package_that_asks_for_a_gpu_is_imported_as_its_kernel_is(project):
    (project / "properties" / "ref.py").write_text("def double(x):\n    return x * 2\n")

    assert run(["new", "alike", "--from", "properties.op:double", "--reference", "properties/ref.py:double"]) == 0

    texts = [(project / "kernels" / "alike" / f"alike_{part}.py").read_text() for part in ("triton", "baseline")]
    assert all('with _sketched.pretend("cuda"):' in text for text in texts)


def test_a_package_of_which_an_import_failed_half_way_fails_for_the_next_function_too(project):
    (project / "target" / "op.py").write_text(f"{KERNEL}\nimport not_installed_here\n")
    (project / "target" / "__init__.py").write_text("import target.op\n")
    files = SketchFiles(str(project / "target" / "op.py"), "double", "target.op", "torch.positive")

    said = rehearse({"first": ("first", files), "second": ("second", files)})

    assert all("pip install not_installed_here" in said[name] for name in ("first", "second"))


def test_the_file_that_pretends_a_device_adds_no_sizes_to_the_search_for_faults():
    tree = ast.parse(Path(sketched.__file__).read_text())
    numbers = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and type(node.value) is int]
    assert [number for number in numbers if number >= BLOCKS[0]] == []


def test_a_package_that_is_not_installed_is_named_and_no_gpu_is_asked_for(project, capsys):
    (project / "target" / "op.py").write_text("import not_installed_here.parts\n" + KERNEL)

    assert run(["new", "lacking", "--from", "target/op.py:double", "--reference", "ref.py:double"]) == 1
    said = capsys.readouterr().err
    assert "pip install not_installed_here" in said
    assert "without a GPU" not in said


@pytest.mark.nightly
def test_a_library_that_hands_triton_on_where_it_sees_a_gpu_alone_gets_one(project):
    """As vLLM does."""
    handing = "import torch\nimport triton as real\nfrom types import SimpleNamespace\n"
    handing += "stand_in = SimpleNamespace(jit=lambda function: function, cdiv=real.cdiv)\n"
    handing += "triton = real if torch.cuda.is_available() else stand_in\ntl = real.language\n"
    (project / "properties" / "handed.py").write_text(handing)
    direct = "import triton\nimport triton.language as tl\n"
    (project / "properties" / "op.py").write_text(KERNEL.replace(direct, "from properties.handed import tl, triton\n"))

    assert run(["new", "handed", "--from", "properties.op:double", "--reference", "ref.py:double"]) == 0


def test_what_others_have_loaded_stays_once_an_import_fails(monkeypatch):
    pytest.importorskip("torch")
    from types import ModuleType

    from perfci.extensions.adopt.rehearsal.function import _forget

    for name in ("library", "library.part", "helper", "half.part"):
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    _forget({*sys.modules} - {"library", "library.part", "helper", "half.part"}, "library.kernels")
    assert "helper" in sys.modules  # a part in C ends Python if it is loaded twice
    assert not {"library", "library.part", "half.part"} & {*sys.modules}


def test_a_device_that_is_chosen_has_a_number_and_a_stream():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("a GPU answers for itself")
    with sketched.answer_for("cuda"), torch.cuda.device(0) as _:
        assert (torch.cuda.device(0).idx, torch._C._cuda_getCurrentRawStream(0)) == (0, 0)
