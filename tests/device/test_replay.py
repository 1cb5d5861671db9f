"""Calls recorded and repeated: here of torch's operations alone, on a GPU of compiled kernels too."""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from perfci.core.codec import decode, encode  # noqa: E402
from perfci.core.model import Reason  # noqa: E402
from perfci.device import replay  # noqa: E402
from perfci.device.capture import key_of, note_choice, noting, record_call, watch_calls  # noqa: E402
from perfci.device.replay import Program, UnreplayableError  # noqa: E402
from perfci.device.tensors import TorchArrays  # noqa: E402
from perfci.ops.recording import RecordedBinary, RecordedStep, Recording  # noqa: E402

pytestmark = pytest.mark.torch

HOST = TorchArrays("cpu")


def inputs(seed=0, shape=(3, 4)):
    torch.manual_seed(seed)
    return {"x": torch.randn(shape), "y": torch.randn(shape)}


def record(function, given=None):
    recording = record_call(function, given or inputs(), HOST)
    if isinstance(recording, Recording):  # as it reaches another process
        return decode(encode(recording), Recording)
    return recording


def refusal(function, given=None):
    reason = record(function, given)
    assert isinstance(reason, Reason)
    assert reason.kind == "not_replayable"
    return reason.facts["what"]


def several_steps(x, y):
    out = torch.empty(x.shape, dtype=torch.float64)
    torch.add(x, y, out=out)
    return {"rows": [out.t().contiguous()], "sum": (out.view(-1) * 2.0).sum(), "none": None}


def test_a_repeated_call_gives_the_answer_for_the_new_inputs(tmp_path):
    program = Program(record(several_steps), tmp_path, HOST)

    for seed in (1, 2):
        given = inputs(seed)
        output, expected = program(**given), several_steps(**given)
        assert torch.equal(output["rows"][0], expected["rows"][0])
        assert torch.equal(output["sum"], expected["sum"])
        assert output["none"] is None


def test_a_repeated_call_does_the_same_work_in_the_same_order(tmp_path):
    program, given = Program(record(several_steps), tmp_path, HOST), inputs(3)

    with watch_calls() as direct:
        several_steps(**given)
    with watch_calls() as repeated:
        program(**given)

    assert repeated.identity("") == direct.identity("")
    assert len(direct.identity("").operations) >= 5


def test_an_output_of_a_repeated_call_is_never_an_earlier_one(tmp_path):
    program = Program(record(several_steps), tmp_path, HOST)

    first = program(**inputs(1))["rows"][0]
    kept = first.clone()
    program(**inputs(2))

    assert torch.equal(first, kept)


def test_a_call_in_place_changes_its_input_as_the_recorded_one_does(tmp_path):
    program = Program(record(lambda x, y: x.add_(y)), tmp_path, HOST)
    given = inputs(5)
    expected = given["x"] + given["y"]

    output = program(**given)

    assert torch.equal(given["x"], expected)
    assert output.data_ptr() == given["x"].data_ptr()


def test_calls_of_another_shape_layout_dtype_or_scalar_have_another_key():
    x = torch.zeros(64)
    keys = [
        key_of({"x": given, "n": number})
        for given, number in (
            (x, 1),
            (x, 2),
            (x[:32], 1),
            (torch.zeros(32, 2)[:, 0], 1),
            (torch.zeros(64, dtype=torch.int32), 1),
        )
    ]

    assert len(set(keys)) == len(keys)
    assert key_of({"x": torch.ones(64), "n": 1}) == keys[0]


def test_a_call_whose_way_depends_on_values_is_not_repeated():
    assert refusal(lambda x, y: x if x.sum() > 0 else y).startswith("aten.")
    assert "_local_scalar_dense" in refusal(lambda x, y: x * y.max().item())


def test_a_call_that_returns_something_kept_is_not_repeated():
    kept = torch.ones(3, 4)

    assert "made before the call" in refusal(lambda x, y: x + kept)
    assert "made before the call" in refusal(lambda x, y: (x + y, kept)[1])


def test_a_call_that_does_nothing_is_not_repeated():
    assert "nothing" in refusal(lambda x, y: x)


def test_a_call_that_reads_a_file_is_not_repeated(tmp_path):
    (tmp_path / "weights").write_bytes(bytes(48))

    def call(x, y):
        return x + torch.from_file(str(tmp_path / "weights"), size=12).view(3, 4) + y

    assert "from_file" in refusal(call)


@pytest.mark.parametrize(
    "name",
    [
        *("aten.from_file.default", "aten._local_scalar_dense.default", "profiler._record_function_enter.default"),
        *("aten.save.default", "aten.item.default", "aten.__setattr__.__call__", "aten.__getattribute__.__call__"),
        *("aten.add.__init__", "aten._dir.append", "aten.no_such.default", "aten.add.no_such"),
    ],
)
def test_a_forged_recording_calls_nothing_that_reaches_beyond_the_device(name, tmp_path):
    forged = Recording("", ({"tensor": 0},), (RecordedStep(name, given=({"tensor": 0},)),), {"tensor": 0})

    with pytest.raises(UnreplayableError):
        Program(forged, tmp_path, HOST)


@pytest.mark.parametrize("spelled", [{"torch": "load"}, {"torch": "ops"}, {"other": 1}])
def test_a_forged_value_becomes_no_object(spelled, tmp_path):
    step = RecordedStep(
        "aten.add.Tensor", given=({"tensor": 0}, {"tensor": 0}), named={"alpha": spelled}, gives={"tensor": 1}
    )
    forged = Recording("", ({"tensor": 0},), (step,), {"tensor": 1})

    with pytest.raises((TypeError, KeyError)):
        Program(forged, tmp_path, HOST)


def test_a_forged_recording_does_no_work_on_another_device(tmp_path):
    moved = RecordedStep(
        "aten._to_copy.default", given=({"tensor": 0},), named={"device": {"device": "meta"}}, gives={"tensor": 1}
    )

    with pytest.raises(UnreplayableError):
        Program(Recording("", ({"tensor": 0},), (moved,), {"tensor": 1}), tmp_path, HOST)


def test_every_repeated_launch_is_seen_by_whoever_watches(tmp_path, monkeypatch):
    class Kernel:
        def __getitem__(self, grid):
            return lambda *args: None

    step = RecordedStep(binary=0, grid=(3, 1, 1), given=({"tensor": 0}, {"constant": "8"}))
    binary = RecordedBinary("kernel", b"", "{}", ())
    monkeypatch.setattr(replay, "_load_binary", lambda *_: Kernel())
    program = Program(Recording("", ({"tensor": 0},), (step,), {"tensor": 0}, (binary,)), tmp_path, HOST)
    seen = []

    program(x=torch.ones(2))
    monkeypatch.setattr(Kernel, "__getitem__", lambda _, grid: lambda *args: seen.append((grid, len(args))))
    program(x=torch.ones(2))

    assert seen == [((3, 1, 1), 2)]


def test_tensors_are_freed_with_the_step_that_uses_them_last(tmp_path):
    def chain(x, y):
        for _ in range(4):
            x = x + y
        return x

    program = Program(record(chain), tmp_path, HOST)

    assert sum(map(len, program._done)) == 3


@pytest.mark.cuda
def test_a_compiled_kernel_is_repeated_without_its_source(tmp_path):
    from perfci.device import open_device
    from perfci.worker.load import load_op

    folder = Path(__file__).parents[2] / "kernels"
    suite = load_op("softmax", folder / "softmax", folder).performance
    device = open_device("cuda", seed=1)
    made = suite.make_inputs(rows=512, cols=1024, dtype=torch.float16, device="cuda", seed=1)
    suite.kernel(**made)
    recording = decode(encode(device.record(suite.kernel, made)), Recording)
    program = device.play(recording, tmp_path)

    other = suite.make_inputs(rows=512, cols=1024, dtype=torch.float16, device="cuda", seed=2)

    assert torch.equal(program(**other), suite.kernel(**other))


def test_what_a_tuner_chose_is_recorded_and_known_to_a_capture_of_the_repeated_call(tmp_path):
    def tuned(x, y):
        note_choice("k: BLOCK: 64")
        return x + y

    recording = record(tuned)
    program = noting(Program(recording, tmp_path, HOST), recording.choices)
    with watch_calls() as captured:
        program(**inputs())

    assert captured.identity("").choices == ("k: BLOCK: 64",)
