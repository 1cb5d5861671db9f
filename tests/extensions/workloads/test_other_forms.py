"""Traces of torch.profiler and flashinfer-trace, read and written."""

import gzip
import json

import pytest

from perfci.core.errors import StoredFileError, UsageError
from perfci.core.settings import at
from perfci.extensions.workloads import traces
from perfci.extensions.workloads.page import place_all, write_page
from perfci.extensions.workloads.records import Call, Tensor, Workload, read_workload, write_workload

DEFINITION = {
    "name": "rmsnorm_h512", "op_type": "rmsnorm", "reference": "def run(x, weight): ...",
    "axes": {"batch_size": {"type": "var"}, "hidden_size": {"type": "const", "value": 512}},
    "inputs": {
        "x": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden_size"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"}},
}  # fmt: skip
INPUTS = {
    "x": {"type": "random"}, "weight": {"type": "safetensors", "path": "w", "tensor_key": "w"},
    "eps": {"type": "scalar", "value": 1e-6},
}  # fmt: skip


@pytest.fixture
def settings(tmp_path):
    folder = tmp_path / "kernels" / "rms_norm"
    folder.mkdir(parents=True)
    for part in ("triton", "baseline", "accuracy", "performance"):
        (folder / f"rms_norm_{part}.py").write_text("def rms_norm(x): return x\n")
    return at(tmp_path)


@pytest.fixture
def folder(tmp_path):
    """Two workloads of one definition, of which the second comes twice."""
    made = tmp_path / "trace"
    for part in ("definitions/norm", "workloads/norm"):
        (made / part).mkdir(parents=True)
    (made / "definitions/norm/rmsnorm_h512.json").write_text(json.dumps(DEFINITION))
    lines = [
        {"definition": "rmsnorm_h512", "workload": {"axes": {"batch_size": size}, "inputs": INPUTS, "uuid": str(at)}}
        for at, size in enumerate((7, 64, 64))
    ]
    (made / "workloads/norm/rmsnorm_h512.jsonl").write_text("\n".join(map(json.dumps, lines)))
    return made


def test_workloads_of_flashinfer_trace_are_calls_with_their_axes_for_a_case(folder, settings):
    first, second = traces.read_folder(folder, "fib", settings).calls

    assert (first.op, first.count, second.count) == ("rms_norm", 1, 2)
    assert first.case == "batch_size=7,hidden_size=512,dtype=bfloat16"
    assert first.arguments == {"x": Tensor((7, 512), "bfloat16"), "weight": Tensor((512,), "bfloat16"), "eps": 1e-6}
    assert first.outputs == (Tensor((7, 512), "bfloat16"),)


@pytest.mark.parametrize(
    ("line", "what"),
    [({"definition": "other"}, "KeyError"), ("[]", "TypeError"), ({"definition": "rmsnorm_h512"}, "Key")],
)
def test_a_workload_that_is_none_is_named_with_its_file(folder, settings, line, what):
    (folder / "workloads/norm/bad.jsonl").write_text(line if isinstance(line, str) else json.dumps(line))

    with pytest.raises(StoredFileError, match=rf"bad\.jsonl.*{what}"):
        traces.read_folder(folder, "fib", settings)


def test_a_folder_without_workloads_is_refused(tmp_path, settings):
    with pytest.raises(UsageError, match="has no workloads"):
        traces.read_folder(tmp_path, "fib", settings)


def test_what_is_written_reads_back_with_the_same_calls(tmp_path, settings):
    arguments = {"x": Tensor((7, 512), "bfloat16"), "eps": 1e-6, "mode": "fast", "weight": None}
    call = Call("rms_norm", arguments, (Tensor((7, 512), "bfloat16"),), 5)

    traces.write_folder(Workload("llama", calls=(call,)), tmp_path / "out", settings)

    [read] = traces.read_folder(tmp_path / "out", "again", settings).calls
    assert (read.op, read.outputs) == (call.op, call.outputs)
    assert read.arguments == {"x": arguments["x"], "eps": 1e-6}
    [path] = (tmp_path / "out").rglob("definitions/**/*.json")
    code = json.loads(path.read_text())["reference"]
    space = {"rms_norm": lambda **given: given}
    exec(code.split("\n\n", 1)[1], space)
    assert space["run"](1, 2) == {"x": 1, "eps": 2, "mode": "fast", "weight": None}


# --- torch.profiler ---------------------------------------------------------------------------------------------------


def event(cat, name, ts, dur, tid=1, **args):
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": dur, "tid": tid, "args": args}


SHAPES = {"Input Dims": [[7, 512], [], []], "Input type": ["c10::BFloat16", "Scalar", ""], "Concrete Inputs": ["", "5"]}
EVENTS = [
    event("user_annotation", "ProfilerStep#4", 0, 100),
    event("user_annotation", "ProfilerStep#5", 100, 100),
    *(
        one
        for start in (0, 100)
        for one in (
            event("cpu_op", "mylib::rms_norm", start + 5, 20, **{"External id": 1}, **SHAPES),
            event("python_function", "ops.py(3): rms_norm", start + 6, 10),  # within the call above
            event("cuda_runtime", "cudaLaunchKernel", start + 10, 2, correlation=start + 1),
            event("kernel", "_rows", start + 40, 30, correlation=start + 1, stream=7),
            event("cpu_op", "aten::mul", start + 30, 5, **{"External id": 2}),
            event("cuda_runtime", "cudaLaunchKernel", start + 31, 2, correlation=start + 2),
            event("kernel", "mul", start + 75, 10, correlation=start + 2, stream=7, **{"External id": 2}),
        )
    ),
    {"ph": "M", "name": "process_name"},
]


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_a_trace_of_torch_profiler_gives_calls_shares_and_what_else_ran(tmp_path, settings, ending):
    path = tmp_path / f"trace.{ending}"
    text = json.dumps({"traceEvents": EVENTS}).encode()
    path.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)

    seen = traces.read_trace(path, "llama", settings)

    assert (seen.steps, seen.step_us, seen.clock) == (2, 100.0, "device")
    [call] = seen.calls
    assert (call.op, call.count, call.us, call.kernels) == ("rms_norm", 2, 60.0, 2)
    assert call.arguments == {"input0": Tensor((7, 512), "bfloat16")}
    assert seen.share(call.us) == 0.3
    [other] = seen.others
    assert (other.name, other.by, other.count, other.us) == ("mul", "aten::mul", 2, 20.0)
    assert (seen.busy_us, seen.gaps) == (80.0, 3)
    assert "2 steps of 100 us each, by torch.profiler.\n" in write_page(place_all(seen))


@pytest.mark.parametrize("text", ["{", '{"traceEvents": 3}', "[1]x"])
def test_what_is_no_trace_is_refused(tmp_path, settings, text):
    (tmp_path / "trace.json").write_text(text)

    with pytest.raises(StoredFileError, match=r"trace\.json"):
        traces.read_trace(tmp_path / "trace.json", "llama", settings)


def test_a_trace_without_the_projects_ops_is_refused(tmp_path, settings):
    (tmp_path / "trace.json").write_text(json.dumps(EVENTS[:2]))

    with pytest.raises(UsageError, match="no call of an op"):
        traces.read_trace(tmp_path / "trace.json", "llama", settings)


def write_trace(path, **changed):
    call = {"ph": "X", "cat": "cpu_op", "name": "mine::rms_norm", "ts": 1.0, "dur": 5.0, "tid": 1,
            "args": {"Input Dims": [[7, 512]], "Input type": ["float"]}}  # fmt: skip
    path.write_text(json.dumps({"traceEvents": [call | changed]}))
    return path


@pytest.mark.parametrize(
    "changed",
    [
        {"ts": "1"}, {"ts": None}, {"dur": -3.0}, {"dur": float("inf")}, {"ts": 1e308}, {"tid": [1]}, {"args": None},
        {"args": {"Input Dims": 5}}, {"args": {"correlation": [1]}}, {"name": 5},
    ],
    ids=str,
)  # fmt: skip
def test_a_trace_of_another_form_is_refused_by_its_name(tmp_path, settings, changed):
    with pytest.raises(StoredFileError, match=r"trace\.json could not be read"):
        traces.read_trace(write_trace(tmp_path / "trace.json", **changed), "bad", settings)


def test_a_cut_archive_is_refused_and_odd_forms_of_tensors_count_as_no_tensors(tmp_path, settings):
    cut = tmp_path / "cut.json.gz"
    cut.write_bytes(gzip.compress(b"[" + b"1," * 1000)[:-9])
    args = {"Input Dims": [[-1, 4], 5, [2]], "Input type": ["float"] * 3, "Input Strides": [[1], [1], "a"]}
    (call,) = traces.read_trace(write_trace(tmp_path / "odd.json", args=args), "odd", settings).calls

    with pytest.raises(StoredFileError, match=r"cut\.json\.gz could not be read"):
        traces.read_trace(cut, "cut", settings)
    assert call.arguments == {"input2": Tensor((2,), "float32")}


@pytest.mark.parametrize("params", ["rows=(((", "rows=open('x')"])
def test_a_stored_workload_with_parameters_that_are_none_is_refused_by_its_place(tmp_path, settings, params):
    path = write_workload(settings.kernels, Workload("w", calls=(Call("rms_norm", params="rows=4"),)))
    path.write_text(path.read_text().replace("rows=4", params))

    with pytest.raises(StoredFileError, match=r"calls\[0\]"):
        read_workload(settings.kernels, "w")
