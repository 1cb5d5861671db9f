"""What looks like cheating, by what a case moved and did, with the capture's texts."""

import dataclasses
import sys

import numpy as np
import pytest

from perfci.core.model import Identity, LaunchIdentity, Limits
from perfci.measure.suspect import calls_reference, suspicions
from tests.measure.scripted import KERNEL_US, REFERENCE_US, Scripted


@pytest.fixture
def scripted():
    return Scripted()


def timed_case(scripted, bytes_moved=1):
    scripted.fields = {"bytes_moved": lambda rows, dtype: bytes_moved}
    return scripted.measure()["rows=5,dtype=float32"]


def test_more_than_the_measured_bandwidth_is_suspicious(scripted):
    l2 = scripted.device.info.l2_bytes
    case = timed_case(scripted, 116_000_000 + l2)

    (reason,) = suspicions(case, scripted.device, Limits(100.0))

    assert reason.kind == "above_bandwidth"
    assert reason.facts["gbps"] == pytest.approx(116.0)
    assert suspicions(case, scripted.device, Limits(102.0)) == ()
    assert suspicions(case, scripted.device, Limits()) == ()


@pytest.mark.parametrize(("dtype", "suspicious"), [("float16", True), ("float32", False), ("int8", False)])
def test_more_than_any_product_computes_is_suspicious_if_a_product_bounds_it(scripted, dtype, suspicious):
    case = timed_case(scripted)
    us = case.blocks[0].arms["kernel"].time.median_us
    limits = Limits(None, {"float16": 1.0, "float32": 1.0})

    def judge(share):
        case.facts = dataclasses.replace(case.facts, dtype=dtype, flops=int(share * us * 1e6))
        return [suspicion.kind for suspicion in suspicions(case, scripted.device, limits)]

    assert (judge(1.4), judge(1.6)) == ([], ["above_rate"] * suspicious)


# --- what the timer does not see --------------------------------------------------------------------------------------


def test_calls_in_a_row_that_take_far_longer_by_the_clock_than_by_the_timer_are_suspicious(scripted):
    seconds = 1.2e-6
    scripted.device.window_s = lambda call, launches: launches * seconds * KERNEL_US
    assert suspicions(timed_case(scripted), scripted.device, Limits()) == ()

    seconds = 2.6e-6
    (reason,) = suspicions(timed_case(scripted), scripted.device, Limits())

    assert reason.kind == "beyond_clock"
    assert reason.facts["clock_us"] == pytest.approx(2.6 * KERNEL_US)


def test_one_quick_window_shows_that_a_slow_clock_was_an_accident(scripted):
    windows = iter([9e-6, 9e-6] * 3)  # while the cases are prepared
    scripted.device.window_s = lambda call, launches: launches * next(windows, 1e-6) * KERNEL_US

    assert suspicions(timed_case(scripted), scripted.device, Limits()) == ()


@pytest.mark.parametrize("of", ["host_us", "span_us"])
def test_a_call_that_keeps_the_host_or_the_device_for_as_long_hides_no_work(scripted, of):
    scripted.device.window_s = lambda call, launches: launches * 9e-6 * KERNEL_US
    case = timed_case(scripted)
    assert [suspicion.kind for suspicion in suspicions(case, scripted.device, Limits())] == ["beyond_clock"]

    for block in case.blocks:
        block.arms["kernel"] = dataclasses.replace(block.arms["kernel"], **{of: 8.5 * KERNEL_US})

    assert suspicions(case, scripted.device, Limits()) == ()


def test_what_an_npu_rests_between_launches_is_not_held_for_work(scripted):
    scripted.device.window_s = lambda call, launches: launches * 9e-6 * KERNEL_US
    case = timed_case(scripted)
    scripted.device.info = dataclasses.replace(scripted.device.info, kind="npu")

    assert suspicions(case, scripted.device, Limits()) == ()


# --- answers that are remembered --------------------------------------------------------------------------------------


class Remembering:
    """A kernel that computes only if its input is not that of the call before, and the launches' times."""

    def __init__(self, extra):
        self.extra, self.last, self.us = extra, None, KERNEL_US

    def __call__(self, x):
        same = self.last is not None and np.array_equal(self.last, x)
        self.last, self.us = x.copy(), KERNEL_US if same else KERNEL_US * (1 + self.extra)
        return x * 2

    def time_us(self, arm, rows):
        return self.us if arm == "kernel" else REFERENCE_US


@pytest.mark.parametrize(("extra", "kinds"), [(0.0, []), (0.08, []), (0.5, ["answer_remembered"])])
def test_a_kernel_whose_first_call_on_other_values_takes_longer_remembers_its_answer(extra, kinds):
    kernel = Remembering(extra)
    scripted = Scripted(kernel.time_us)
    scripted.kernel = kernel

    reasons = suspicions(timed_case(scripted), scripted.device, Limits())

    assert [reason.kind for reason in reasons] == kinds
    assert all(reason.facts["extra"] == pytest.approx(extra, rel=0.05) for reason in reasons)


def test_a_kernel_that_computes_for_some_values_whatever_it_remembers_is_seen_by_the_others():
    class Choosing(Remembering):
        def __call__(self, x):
            plays = int.from_bytes(x.tobytes()[:2]) % 5 < 4
            output = super().__call__(x)
            self.us = self.us if plays else KERNEL_US * (1 + self.extra)
            return output

    kernel = Choosing(3.0)
    scripted = Scripted(kernel.time_us)
    scripted.kernel = kernel

    case = timed_case(scripted)
    longer = sorted(case.renewals)

    assert longer[len(longer) // 4] == pytest.approx(0.0)
    assert [reason.kind for reason in suspicions(case, scripted.device, Limits())] == ["answer_remembered"]


def test_two_of_four_first_calls_that_were_interrupted_are_no_sign_of_memory(scripted):
    case = timed_case(scripted)

    case.renewals = [0.01, 0.4, 0.0, 0.4]
    assert suspicions(case, scripted.device, Limits()) == ()

    case.renewals = [0.01, 0.4, 0.4, 0.4]
    assert [reason.kind for reason in suspicions(case, scripted.device, Limits())] == ["answer_remembered"]


# --- the reference's operations -----------------------------------------------------------------------------------

MM = "aten.mm.default(#0 float16[8,16](16,1)@16, #1 float16[16,4](4,1)@16)"
TO_FLOAT = "aten._to_copy.default(#0 float16[8,16](16,1)@16, dtype=torch.float32)"
WIDE_MM = "aten.mm.default(#2 float32[8,16](16,1)@16, #3 float32[16,4](4,1)@16)"
MM_INTO = "aten.mm.out(#1 float16[8,16](16,1)@16, #2 float16[16,4](4,1)@16, out=#0 float16[8,4](4,1)@16)"
SMALL_MM = "aten.mm.default(#0 float16[1,16](16,1)@16, #1 float16[16,4](4,1)@16)"
EMPTY = "aten.empty.memory_format([8, 4], device=cuda, dtype=torch.float16, pin_memory=False)"
VIEW = "aten.t.default(#0 float16[4,16](16,1)@16)"
MUL, ADD = "aten.mul.Tensor(#0 float32[8,16](16,1)@16, 2)", "aten.add.Tensor(#1 float32[8,16](16,1)@16, 1)"
EXPAND = "aten.expand.default(#0 float16[16](1)@16, [8, 16])"
CLONE = "aten.clone.default(#0 float16[8,16](0,1)@16, memory_format=torch.contiguous_format)"
OWN = LaunchIdentity("_kernel", "abc", (1, 1, 1))


def said(kernel, reference, launches=(OWN,)):
    return calls_reference(Identity(tuple(kernel), tuple(launches)), Identity(tuple(reference)))


@pytest.mark.parametrize(
    "kernel",
    [[MM], [EMPTY, MM_INTO], [TO_FLOAT, WIDE_MM], [VIEW, MM], [MUL, MM]],
    ids=["as it is", "into its output", "in a wider dtype", "behind a view", "among others"],
)
@pytest.mark.parametrize("launches", [(), (OWN,)], ids=["alone", "behind a launch"])
def test_a_kernel_that_has_torch_do_the_references_work_is_told(kernel, launches):
    assert said(kernel, [VIEW, MM], launches) == "aten.mm"


@pytest.mark.parametrize("kernel", [[EMPTY], [TO_FLOAT, EMPTY], [VIEW], [CLONE], [SMALL_MM], []])
def test_what_any_wrapper_does_is_no_cheat(kernel):
    assert said(kernel, [MM]) is None


def test_a_reference_that_only_moves_memory_is_called_by_what_moves_it_and_launches_nothing():
    assert said([EXPAND, CLONE], [EXPAND, CLONE], launches=()) == "aten.clone"
    assert said([EXPAND, CLONE], [EXPAND, CLONE]) is None
    assert said([EMPTY], [EXPAND, CLONE], launches=()) is None


@pytest.mark.torch
def test_captured_calls_have_the_form_that_is_looked_for():
    import torch

    from perfci.device.capture import watch_calls

    def identity(call, launches=(OWN,)):
        with watch_calls() as capture:
            call()
        return dataclasses.replace(capture.identity(""), launches=launches)

    x, w = torch.ones(8, 16, dtype=torch.float16), torch.ones(16, 4, dtype=torch.float16)
    out = torch.empty(8, 4, dtype=torch.float16)
    mm, softmax, clone = identity(lambda: x @ w), identity(lambda: torch.softmax(x, -1)), identity(x.clone)

    assert calls_reference(identity(lambda: torch.mm(x, w, out=out)), mm) == "aten.mm"
    assert calls_reference(identity(lambda: torch.mm(x.float(), w.float())), mm) == "aten.mm"
    assert calls_reference(identity(lambda: torch.softmax(x, -1)), softmax) == "aten._softmax"
    assert calls_reference(identity(lambda: torch.empty_like(x).copy_(x)), softmax) is None
    assert calls_reference(identity(lambda: x.t().contiguous()), mm) is None
    assert calls_reference(identity(lambda: x[0].expand(8, 16).contiguous(), ()), clone) == "aten.clone"


def test_a_kernel_that_calls_the_reference_is_suspect_before_it_is_timed(scripted, monkeypatch):
    # The package has a function of the module's name.
    monkeypatch.setattr(sys.modules["perfci.measure.prepare"], "calls_reference", lambda kernel, reference: "aten.mm")

    (reason,) = scripted.prepare().suspicion

    assert (reason.kind, reason.facts["operation"], reason.facts["case"]) == (
        "calls_reference",
        "aten.mm",
        "rows=4,dtype=float32",
    )


# --- the CPU in the device's place ------------------------------------------------------------------------------------


def test_operations_that_the_device_leaves_to_the_cpu_are_named_before_anything_is_timed(scripted):
    scripted.device.fallbacks = lambda identity: ("aten::sin", "aten::cos")

    (reason,) = scripted.prepare().suspicion

    assert (reason.kind, reason.facts["operation"]) == ("fell_back", "aten::sin, aten::cos")
