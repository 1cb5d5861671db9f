"""What perfci takes of torch_npu and triton-ascend is there, read from the real wheels; nothing of them is imported.

The tables name all of it. What C++ alone defines is looked for in the libraries' texts.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from perfci.device import npu_smi
from tests.npu import wheels

pytestmark = pytest.mark.slow

DEVICE = Path(npu_smi.__file__).parent
SOURCES = sorted(DEVICE.glob("npu*.py"))
RELEASES = ("2.6.0", "2.7.1", None)
ASCEND = "3.2.0"

NPU = {
    "Event": {"enable_timing"},
    "Event.elapsed_time": {"end_event"},
    "Event.record": set(),
    "Stream": set(),
    "Stream.synchronize": set(),
    "current_stream": set(),
    "device_count": set(),
    "empty_cache": set(),
    "get_device_name": set(),
    "get_device_properties": set(),
    "is_available": set(),
    "max_memory_allocated": set(),
    "memory_allocated": set(),
    "reset_peak_memory_stats": set(),
    "set_device": set(),
    "synchronize": set(),
    "utils.get_cann_version": set(),
}
"""Name in torch.npu -> what perfci passes to it by name."""

PROFILER = {
    "AiCMetrics.AiCoreNone": set(),
    "ExportType.Text": set(),
    "ProfilerActivity": set(),
    "ProfilerLevel.Level1": set(),
    "_ExperimentalConfig": {"profiler_level", "aic_metrics", "export_type", "data_simplification"},
    "profile": {"activities", "schedule", "on_trace_ready", "experimental_config"},
    "profile.__enter__": set(),
    "profile.__exit__": set(),
    "profile.step": set(),
    "profiler.analyse": set(),
    "schedule": {"wait", "warmup", "active", "repeat"},
    "tensorboard_trace_handler": set(),
}
"""Name in torch_npu.profiler -> what perfci passes to it by name."""

POSITIONAL = {"tensorboard_trace_handler": "dir_name", "profiler.analyse": "profiler_path"}
"""What takes its one argument by place -> what that place is called."""

PROPERTIES = {"name", "total_memory", "vector_core_num", "multi_processor_count", "L2_cache_size"}
"""Fields of a device's properties; perfci does without all but the first."""

ELSEWHERE = {"ProfilerActivity.NPU"}
"""Members of what C++ defines."""

TRITON = {
    "__version__",
    "backends.backends",
    "backends.compiler.GPUTarget.backend",
    "compiler.CompiledKernel",
    "runtime.autotuner.Autotuner",
    "runtime.driver",
    "runtime.driver.driver",
    "runtime.jit.JITFunction",
    "runtime.jit.JITFunction.run",
    "runtime.interpreter.GridExecutor",
    "runtime.interpreter.InterpretedFunction",
    "runtime.interpreter.interpreter_builder",
}
"""Names in triton that perfci needs on an NPU, or in its interpreter."""

ROOTS = {
    "npu": "npu",
    "self._npu": "npu",
    "torch.npu": "npu",
    "torch_npu.npu": "npu",
    "profiler": "profiler",
    "_profiler()": "profiler",
    "torch_npu.profiler": "profiler",
    "properties": "properties",
}
"""How perfci's sources write these objects."""


@pytest.fixture(params=RELEASES, ids=["first", "recommended", "newest"])
def torch_npu(request) -> wheels.Wheel:
    return fetched("torch-npu", request.param)


@pytest.fixture
def triton_ascend() -> wheels.Wheel:
    return fetched("triton-ascend", ASCEND)


def fetched(name: str, version: str | None) -> wheels.Wheel:
    try:
        return wheels.wheel(name, version)
    except wheels.UnreachableError as error:
        pytest.skip(f"no wheel of {name} {version or '(newest)'} here, and no index to fetch it from: {error}")


def used() -> tuple[set[str], dict[str, set[str]]]:
    """Names of torch_npu in perfci's sources, as `npu.Event`, and what each is given by name."""
    names, given = set(), {}
    for source in SOURCES:
        tree = ast.parse(source.read_text("utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and (name := _rooted(ast.unparse(node))):
                names.add(name)
            if isinstance(node, ast.Call) and (name := _rooted(ast.unparse(node.func))):
                given.setdefault(name, set()).update(each.arg for each in node.keywords)
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found = re.fullmatch(r"torch(?:\.npu|_npu\.profiler)\.\w+(?:\.\w+)*", node.value)
                names |= {_rooted(node.value)} if found else set()
    return names - {None}, given


def _rooted(text: str) -> str | None:
    """`self._npu.Event` -> `npu.Event`."""
    for root, short in ROOTS.items():
        if re.fullmatch(rf"{re.escape(root)}(\.\w+)+", text):
            return short + text[len(root) :]
    return None


def test_the_tables_name_all_that_perfci_takes_of_torch_npu():
    names, given = used()
    known = {f"npu.{name}" for name in NPU} | {f"profiler.{name}" for name in {*PROFILER, *ELSEWHERE}}
    known |= {f"properties.{name}" for name in PROPERTIES}
    parts = {name.rsplit(".", count)[0] for name in known for count in range(3)}

    assert names - parts == set()
    table = {f"npu.{name}": words for name, words in NPU.items()}
    table |= {f"profiler.{name}": words for name, words in PROFILER.items()}
    assert {name: new for name, words in given.items() if (new := words - table.get(name, set()))} == {}


def test_the_tables_name_nothing_that_perfci_does_without():
    text = "\n".join(source.read_text("utf-8") for source in DEVICE.glob("*.py"))
    names = {name.split(".")[-1] for name in {*NPU, *PROFILER, *ELSEWHERE}} | PROPERTIES

    assert {name for name in names if not re.search(rf"\b{re.escape(name)}\b", text)} == set()


def test_properties_that_perfci_reads_by_name_are_in_the_table():
    text = (DEVICE / "npu.py").read_text("utf-8")
    read = {word for call in re.findall(r"_told\(properties, ([^)]*)\)", text) for word in re.findall(r'"(\w+)"', call)}

    assert read
    assert read <= PROPERTIES


@pytest.mark.parametrize("name", sorted(NPU))
def test_torch_npu_has_what_perfci_calls(torch_npu, name):
    found = torch_npu.find(f"torch_npu.npu.{name}")

    assert found is not None, f"{torch_npu.name} has no torch.npu.{name}"
    assert_takes(found, NPU[name], name)


@pytest.mark.parametrize("name", sorted(PROFILER))
def test_the_profiler_has_what_perfci_calls(torch_npu, name):
    found = torch_npu.find(f"torch_npu.profiler.{name}")

    assert found is not None, f"{torch_npu.name} has no torch_npu.profiler.{name}"
    assert_takes(found, PROFILER[name], name)
    if name in POSITIONAL:
        assert next(each.arg for each in found.args.args) == POSITIONAL[name]


def assert_takes(node: ast.AST, words: set[str], name: str) -> None:
    known = wheels.parameters(node)
    if words:
        assert known is not None, f"what {name} takes cannot be read"
        assert words <= known


def test_the_profiler_records_what_the_npu_does(torch_npu):
    source = torch_npu.text("torch_npu/profiler/profiler_interface.py")

    assert "ProfilerActivity.NPU" in source


def test_a_step_is_recorded_behind_one_that_warms_up(torch_npu):
    """The schedule that perfci asks for, by the package's own source: warm up, record and save, then nothing."""
    file = torch_npu.module("torch_npu.profiler.scheduler")
    nodes = [node for node in torch_npu.tree(file).body if isinstance(node, ast.ClassDef)]
    actions = next(node for node in nodes if node.name == "ProfilerAction")
    schedule = next(node for node in nodes if node.name == "Schedule")
    for each in ast.walk(schedule):
        if isinstance(each, ast.FunctionDef):
            each.returns = None
            for argument in each.args.args:
                argument.annotation = None
    made = ast.Module([actions, schedule], type_ignores=[])
    space = {"Enum": __import__("enum").Enum, "print_warn_msg": lambda *_: None}
    exec(compile(ast.fix_missing_locations(made), file, "exec"), space)

    asked = space["Schedule"](wait=0, warmup=1, active=1, repeat=1)

    assert [asked(step).name for step in range(4)] == ["WARMUP", "RECORD_AND_SAVE", "NONE", "NONE"]


def test_the_details_file_has_the_columns_that_perfci_reads(torch_npu):
    from perfci.device.npu_profiler import _COLUMNS, _NEEDED, DETAILS

    headers = torch_npu.text("torch_npu/profiler/analysis/prof_common_func/_csv_headers.py")
    parser = torch_npu.text("torch_npu/profiler/analysis/prof_view/_kernel_view_parser.py")
    written = set(re.findall(r'"([^"]+)"', headers))

    assert f'"{DETAILS}"' in parser
    assert {ours for ours in (*_NEEDED, "kind", "core") if not written & set(_COLUMNS[ours])} == set()


def test_the_device_tells_its_cores_and_its_cache_in_the_newest_release():
    newest = fetched("torch-npu", None)

    missing = {name for name in PROPERTIES if not newest.library_says("torch_npu/lib/libtorch_npu.so", name)}
    assert missing == set()


def test_the_first_release_tells_neither_and_perfci_measures_all_the_same():
    """So its flush reads what the largest known cache needs, by as many programs as the smallest chip has cores."""
    first = fetched("torch-npu", "2.6.0")

    assert not first.library_says("torch_npu/lib/libtorch_npu.so", "vector_core_num")
    flush = (DEVICE / "npu_flush.py").read_text("utf-8")
    assert "l2_bytes or 0" in flush
    assert "cores or _CORES" in flush


def test_importing_torch_loads_the_plugin_by_an_entry_point(torch_npu):
    metadata = next(name for name in torch_npu._names if name.endswith("entry_points.txt"))

    assert re.search(r"\[torch\.backends\]\s+torch_npu\s*=\s*torch_npu:_autoload", torch_npu.text(metadata))


def test_the_plugin_refuses_a_second_accelerator_in_the_words_that_perfci_knows():
    newest = fetched("torch-npu", None)

    assert "Two accelerators cannot be used at the same time" in newest.text("torch_npu/__init__.py")


@pytest.mark.parametrize("name", sorted(TRITON))
def test_triton_ascend_has_what_perfci_takes_of_triton(triton_ascend, name):
    assert triton_ascend.find(f"triton.{name}") is not None


def test_the_table_names_all_that_perfci_takes_of_triton_on_an_npu():
    files = [*SOURCES, *(DEVICE / f"{name}.py" for name in ("capture", "launches", "compiled"))]
    wanted = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("triton."):
                wanted |= {f"{node.module.removeprefix('triton.')}.{alias.name}" for alias in node.names}

    assert wanted
    assert wanted <= TRITON


def test_triton_ascends_driver_says_npu_and_its_backend_makes_ttir_first(triton_ascend):
    driver = triton_ascend.find("triton.backends.ascend.driver.NPUDriver.get_current_target")
    stages = triton_ascend.find("triton.backends.ascend.compiler.AscendBackend.add_stages")

    assert "backend = 'npu'" in ast.unparse(driver)
    made = [each.slice.value for each in ast.walk(stages) if isinstance(each, ast.Subscript) and _is_text(each.slice)]
    assert made[0] == "ttir"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def test_triton_ascend_refuses_as_many_programs_as_perfci_says(triton_ascend):
    described = json.loads((DEVICE.parents[1] / "kernels" / "_devices" / "ascend910b2.json").read_text("utf-8"))

    assert f"grid_all_size > {described['programs']['value']}" in triton_ascend.text("triton/runtime/jit.py")


def test_no_kernel_chains_more_than_two_booleans_which_triton_ascend_refuses():
    """Its front end, as that of Triton 3.2 that it is made from, takes `(a or b) or c` and no `a or b or c`."""
    files = sorted((DEVICE.parents[1] / "kernels").rglob("*.py"))
    jitted = [each for file in files for each in ast.walk(ast.parse(file.read_text("utf-8"))) if _is_jitted(each)]

    assert len(jitted) > 20
    chained = [(each.name, node.lineno) for each in jitted for node in ast.walk(each) if _is_chain(node)]
    assert chained == []


def _is_jitted(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(each) for each in node.decorator_list)


def _is_chain(node: ast.AST) -> bool:
    return isinstance(node, ast.BoolOp) and len(node.values) > 2


def test_a_wheel_that_cannot_be_had_is_said_to_be_so(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wheels, "_download", lambda *_: "the index is away")

    with pytest.raises(wheels.UnreachableError, match="the index is away"):
        wheels.wheel.__wrapped__("torch-npu", "2.6.0")
