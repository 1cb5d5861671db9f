"""First calls of a case: what is verified, captured and refused before anything is timed."""

import math

import pytest

from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from perfci.device.fake import FakeDevice, FakeSpec
from perfci.measure.bench import InseparableError
from perfci.measure.blocks import FIRST_BLOCKS
from perfci.measure.prepare import warm_up
from tests.measure.scripted import BASE_ROOT, HEAD_ROOT, Scripted, raise_on, working


@pytest.fixture
def scripted():
    return Scripted()


# --- what is right ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kernel", "kind"),
    [
        (lambda x: x * 3, "timed_output_wrong"),
        (lambda x: (x * 2)[:-1], "wrong_shape"),
    ],
)
def test_a_case_whose_first_output_is_wrong_is_not_timed(scripted, kernel, kind):
    scripted.kernel = kernel
    subjects = scripted.measure()

    assert {subject.facts.failure.kind for subject in subjects.values()} == {kind}
    assert not any(subject.facts.raised for subject in subjects.values())
    assert scripted.order == []


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "kind"), [(RuntimeError("no stream"), "kernel_raised"), (MemoryError("32 GiB"), "out_of_memory")]
)
def test_a_case_that_raises_while_it_is_prepared_is_not_timed(scripted, error, kind):
    scripted.kernel = raise_on({1}, error)

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    assert (subjects[5].facts.failure.kind, subjects[5].facts.raised) == (kind, True)
    assert subjects[5].facts.failure.facts["error"] == type(error).__name__
    assert [len(subjects[rows].blocks) for rows in (4, 5, 6)] == [FIRST_BLOCKS, 0, FIRST_BLOCKS]


@pytest.mark.parametrize("absurd", [-1, 1e30, math.nan, math.inf])
def test_declarations_of_what_no_call_can_do_are_that_cases_failure(absurd, scripted):
    scripted.fields = {"flops": lambda rows, dtype: absurd if rows == 5 else 7}

    subjects = {subject.params["rows"]: subject for subject in scripted.measure().values()}

    assert subjects[5].facts.failure.facts["error"] == "ValueError"
    assert (subjects[4].facts.flops, len(subjects[4].blocks)) == (7, FIRST_BLOCKS)


def test_what_a_case_declares_and_holds_is_kept(scripted):
    scripted.fields = {"bytes_moved": lambda rows, dtype: 24 * rows, "flops": lambda rows, dtype: 3 * rows}

    facts = scripted.measure()["rows=5,dtype=float32"].facts

    assert (facts.bytes_moved, facts.flops, facts.dtype) == (120, 15, "float32")
    assert facts.footprint_bytes == 120
    assert facts.compile_s > 0


# --- warming up -------------------------------------------------------------------------------------------------------


def warmed(windows):
    device = FakeDevice(FakeSpec(), 1)
    given = iter(windows)
    device.window_s = lambda call, launches: next(given)
    return warm_up(device, None)


def test_warming_up_ends_when_two_windows_agree():
    assert warmed([5e-3, 3e-3, 2.01e-3, 2e-3]) == pytest.approx(200)


def test_warming_up_ends_at_its_limit_though_no_windows_agree():
    assert warmed([0.2, 0.11, 0.05]) == pytest.approx(11_000)


# --- the base ---------------------------------------------------------------------------------------------------------


def test_the_base_is_verified_and_captured_on_the_kernels_own_inputs(scripted):
    buffers = []
    scripted.kernel = working(10.0, lambda x: buffers.append(("kernel", x.ctypes.data)) or x * 2)
    scripted.base = working(11.0, lambda x: buffers.append(("base", x.ctypes.data)) or x * 2)

    base = scripted.prepare().facts.base

    assert {name for name, _ in buffers} == {"kernel", "base"} and len({place for _, place in buffers}) == 1
    assert (base.same, base.duelled, base.failure) == (False, True, None)
    assert base.identity.operations == ("work(11.0 us)",)
    assert [reason.kind for reason in base.changes] == ["operations_changed"]


def test_a_wrong_base_is_named_and_leaves_the_kernel_alone(scripted):
    scripted.kernel, scripted.base = working(10.0), working(11.0, lambda x: x * 3)

    subject = scripted.prepare()

    assert (subject.facts.failure, subject.facts.base.duelled) == (None, False)
    assert subject.facts.base.failure.kind == "base_wrong"
    assert "is wrong in 12 elements" in sentence(subject.facts.base.failure)


@pytest.mark.parametrize(("answer", "references"), [(lambda x: x * 2, 0), (lambda x: x * 2 * (1 + 1e-7), 1)])
def test_a_base_that_gives_the_kernels_bits_needs_no_reference(scripted, answer, references):
    called = []
    scripted.reference = lambda x: called.append(x.dtype) or x * 2
    scripted.kernel, scripted.base = working(10.0), None
    scripted.prepare()
    alone = called.count("float64")
    called.clear()
    scripted.base = working(11.0, answer)

    assert scripted.prepare().facts.base.failure is None
    assert called.count("float64") - alone == references


def test_a_kernel_that_raises_in_a_further_call_leaves_the_base_alone(scripted):
    calls = []

    def kernel(x):
        calls.append(x)
        if len(calls) == 3:  # the first is verified, the second captured
            raise RuntimeError("out of luck")
        return x * 2

    scripted.kernel, scripted.base = working(10.0, kernel), working(11.0)

    assert scripted.prepare().facts.base.failure is None
    assert len(calls) > 2


@pytest.mark.parametrize(
    ("process", "order"), [(0, ["kernel", "base"]), (1, ["base", "kernel"]), (3, ["base", "kernel"])]
)
def test_base_and_kernel_take_turns_at_being_called_first(scripted, process, order):
    called = []
    scripted.kernel = working(10.0, lambda x: called.append("kernel") or x * 2)
    scripted.base = working(11.0, lambda x: called.append("base") or x * 2)

    scripted.prepare(process=process)

    assert list(dict.fromkeys(called)) == order


@pytest.mark.parametrize(
    ("kernels_file", "bases_file"), [(BASE_ROOT / "relu_triton.py", None), (None, HEAD_ROOT / "relu_triton.py")]
)
def test_an_arm_that_launches_the_other_revisions_code_is_told_at_once(scripted, kernels_file, bases_file):
    files = {10.0: kernels_file or HEAD_ROOT / "a.py", 11.0: bases_file or BASE_ROOT / "a.py"}
    launch_from(scripted, files)
    scripted.kernel, scripted.base = working(10.0), working(11.0)

    with pytest.raises(InseparableError) as caught:
        scripted.prepare()

    assert caught.value.reason.kind == "runs_other_code"
    assert caught.value.reason.facts["file"] == str(kernels_file or bases_file)


def test_a_base_alone_in_its_process_must_not_launch_heads_code(scripted):
    launch_from(scripted, {10.0: HEAD_ROOT / "a.py"})
    scripted.kernel = working(10.0)
    scripted.settings = {"as_base": True, "own_root": BASE_ROOT, "head_root": HEAD_ROOT}

    with pytest.raises(ContractError) as caught:
        scripted.prepare()

    assert caught.value.reason.kind == "base_reaches_head"


def launch_from(scripted, files):
    """Kernels that claim so much work are launched from these files."""
    from contextlib import contextmanager
    from dataclasses import replace

    capture_work = scripted.device.capture_work

    @contextmanager
    def capturing():
        with capture_work() as capture:
            seen = Seen(capture)
            yield seen

    class Seen:
        def __init__(self, capture):
            self.capture = capture

        @property
        def sources(self):
            return tuple(str(files[us]) for us in self.capture.spent if us in files)

        def identity(self, inputs):
            return replace(self.capture.identity(inputs))

    scripted.device.capture_work = capturing
