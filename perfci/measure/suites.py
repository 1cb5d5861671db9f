"""Two suites of an op, the base's and that of a change, compared as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from perfci.device.source import stable
from perfci.ops.spec import Accuracy, Performance, case_id

CALLS = ("reference", "make_inputs", "reduces", "tolerance", "tolerance_reason", "deterministic", "uses_dot")
"""Fields that decide whether two accuracy suites make the same check of a case alike."""


def describe_suite(suite: Accuracy | Performance) -> Mapping[str, str]:
    """Returns each field as a text that is equal where the field means the same. Kernels are left out."""
    texts = {}
    for field in dataclasses.fields(suite):
        value = getattr(suite, field.name)
        if field.name.endswith("cases") and value is not None:
            value = list(map(case_id, value))
        if field.name not in {"kernel", "quantised", "peers"}:
            texts[field.name] = stable(value)
    return texts
