"""What looks like cheating, by what a case moved and did, with the capture's texts."""

from __future__ import annotations

import dataclasses
import sys

import pytest

from perfci.core.model import Identity, LaunchIdentity, Limits
from perfci.measure.suspect import calls_reference, suspicions
from tests.measure.scripted import Scripted


@pytest.fixture
def scripted():
    return Scripted()


def timed_case(scripted, bytes_moved):
    scripted.fields = {"bytes_moved": lambda rows, dtype: bytes_moved}
    subject = scripted.measure()["rows=5,dtype=float32"]
    return dataclasses.replace(subject.facts, blocks=tuple(subject.blocks))


def test_more_than_the_measured_bandwidth_is_suspicious(scripted):
    l2 = scripted.device.info.l2_bytes
    case = timed_case(scripted, 106_000_000 + l2)

    (found,) = suspicions(case, scripted.device, Limits(100.0))

    assert found.kind == "above_bandwidth"
    assert found.facts["gbps"] == pytest.approx(106.0)
    assert suspicions(case, scripted.device, Limits(102.0)) == ()
    assert suspicions(case, scripted.device, Limits()) == ()


@pytest.mark.parametrize(("dtype", "suspicious"), [("float16", True), ("float32", False), ("int8", False)])
def test_more_than_any_product_computes_is_suspicious_if_a_product_bounds_it(scripted, dtype, suspicious):
    case = dataclasses.replace(timed_case(scripted, 1), dtype=dtype)
    us = case.blocks[0].arms["kernel"].time.median_us
    limits = Limits(None, {"float16": 1.0, "float32": 1.0})

    below, above = (
        suspicions(dataclasses.replace(case, flops=int(share * us * 1e6)), scripted.device, limits)
        for share in (1.4, 1.6)
    )

    assert below == ()
    assert [each.kind for each in above] == ["above_rate"] * suspicious


# --- the reference's own operations -----------------------------------------------------------------------------------

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
    ids=["as it is", "into its own output", "in a wider dtype", "behind a view", "among others"],
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

    (found,) = scripted.prepare().suspicion

    assert (found.kind, found.facts["operation"], found.facts["case"]) == (
        "calls_reference",
        "aten.mm",
        "rows=4,dtype=float32",
    )


# --- the CPU in the device's place ------------------------------------------------------------------------------------


def test_operations_that_the_device_leaves_to_the_cpu_are_named_before_anything_is_timed(scripted):
    scripted.device.fallbacks = lambda identity: ("aten::sin", "aten::cos")

    (found,) = scripted.prepare().suspicion

    assert (found.kind, found.facts["operation"]) == ("fell_back", "aten::sin, aten::cos")
