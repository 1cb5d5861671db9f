"""The real wheels of torch_npu and triton-ascend have the names that perfci uses, by their text, without import."""

import ast
import json
import re
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest

from perfci.extensions.npu import smi
from tests.extensions.npu.chip.stand_in import cache as cache_folder

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]  # of their sources

EXTENSION = Path(smi.__file__).parent
KERNELS = EXTENSION.parents[2] / "kernels"
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_27_x86_64", "manylinux2014_x86_64")
RELEASES = ("torch-npu==2.6.0", "torch-npu==2.7.1", "torch-npu")
ASCEND = "triton-ascend==3.2.0"

TORCH_NPU = {
    "torch_npu/npu/": (
        "Event", "Stream", "current_stream", "default_stream", "device_count", "elapsed_time", "empty_cache",
        "get_cann_version", "get_device_name", "get_device_properties", "is_available", "max_memory_allocated",
        "mem_get_info", "memory_allocated", "memory_reserved", "record", "reset_peak_memory_stats", "set_device",
        "stream", "synchronize",
    ),
    "torch_npu/profiler/": (
        "AiCMetrics", "AiCoreNone", "ExportType", "Level1", "PipeUtilization", "ProfilerLevel", "Text",
        "_ExperimentalConfig", "analyse", "profile", "schedule", "step", "tensorboard_trace_handler",
        "__enter__", "__exit__",
    ),
}  # fmt: skip
"""Folder of the package -> names that perfci calls, which must be defined there."""

KEYWORDS = {
    "profile": ("activities", "schedule", "on_trace_ready", "experimental_config"),
    "_ExperimentalConfig": ("profiler_level", "aic_metrics", "export_type", "data_simplification"),
    "Schedule": ("wait", "warmup", "active", "repeat"),
}
"""Class of the profiler -> what perfci passes to it by name."""


@cache
def wheel(requirement: str) -> zipfile.ZipFile:
    """Fetched once, without what it depends on; skips the test if there is no index."""
    folder = cache_folder() / "wheels" / requirement
    if not list(folder.glob("*.whl")):
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += [word for platform in PLATFORMS for word in ("--platform", platform)]
        command += ["--python-version", "3.11", "--abi", "cp311", "--dest", str(folder), requirement]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        if done.returncode:
            pytest.skip(f"no wheel of {requirement} here, and no index to fetch it from: {done.stderr[-300:]}")
    return zipfile.ZipFile(next(folder.glob("*.whl")))


@cache
def text(requirement: str, start: str) -> str:
    """All Python files of a wheel below a folder, or one file."""
    files = wheel(requirement)
    names = [name for name in files.namelist() if name.startswith(start) and name.endswith(".py")]
    return "\n".join(files.read(name).decode() for name in names)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("folder", TORCH_NPU)
def test_torch_npu_defines_what_perfci_calls(folder, release):
    source = text(release, folder)
    defined = {name for names in re.findall(r"(?:def|class)\s+(\w+)|^\s*(\w+)\s*=", source, re.M) for name in names}
    brought = set(re.findall(r"\w+", " ".join(re.findall(r"__all__\s*=\s*\[([^\]]*)", source))))

    assert set(TORCH_NPU[folder]) - defined - brought == set()


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("name", KEYWORDS)
def test_the_profiler_takes_what_perfci_passes_by_name(name, release):
    classes = [
        node
        for file in wheel(release).namelist()
        if file.startswith("torch_npu/profiler/") and file.endswith(".py")
        for node in ast.walk(ast.parse(wheel(release).read(file)))
        if isinstance(node, ast.ClassDef) and node.name == name
    ]
    taken = {part.arg for node in classes for part in ast.walk(node) if isinstance(part, ast.arg)}

    assert set(KEYWORDS[name]) <= taken


@pytest.mark.parametrize("release", RELEASES)
def test_the_details_file_has_the_columns_that_perfci_reads(release):
    from perfci.extensions.npu.profiler import _COLUMNS, _NEEDED, DETAILS

    analysis = "torch_npu/profiler/analysis/"
    written = set(re.findall(r'"([^"]+)"', text(release, f"{analysis}prof_common_func/_csv_headers.py")))

    assert f'"{DETAILS}"' in text(release, f"{analysis}prof_view/_kernel_view_parser.py")
    assert {ours for ours in (*_NEEDED, "kind", "core") if not written & set(_COLUMNS[ours])} == set()


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("backends/ascend/driver.py", ["class NPUDriver", "backend = 'npu'|backend = \"npu\""]),
        ("backends/ascend/compiler.py", ["class AscendBackend", r"stages\[.ttir.\]"]),
        ("backends/__init__.py", ["backends"]),
        ("compiler/compiler.py", ["class CompiledKernel"]),
        ("runtime/autotuner.py", ["class Autotuner"]),
        ("runtime/jit.py", ["class JITFunction", r"def run\("]),
        ("runtime/interpreter.py", ["class GridExecutor", "class InterpretedFunction", "interpreter_builder ="]),
    ],
)
def test_triton_ascend_has_what_perfci_takes_of_triton(file, words):
    source = text(ASCEND, f"triton/{file}")

    assert [word for word in words if not re.search(word, source)] == []


def test_triton_ascend_refuses_as_many_programs_as_perfci_says():
    described = json.loads((KERNELS / "_devices" / "ascend910b2.json").read_text("utf-8"))

    assert f"grid_all_size > {described['programs']['value']}" in text(ASCEND, "triton/runtime/jit.py")


def test_no_kernel_chains_more_than_two_booleans_which_triton_ascend_refuses():
    """Its front end, as that of Triton 3.2 that it is made from, takes `(a or b) or c` and no `a or b or c`."""
    nodes = [node for file in sorted(KERNELS.rglob("*.py")) for node in ast.walk(ast.parse(file.read_text("utf-8")))]
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef)]
    jitted = [function for function in functions if any("jit" in ast.unparse(one) for one in function.decorator_list)]

    assert len(jitted) > 20
    chains = [node for each in jitted for node in ast.walk(each) if isinstance(node, ast.BoolOp)]
    assert [ast.unparse(node) for node in chains if len(node.values) > 2] == []
