"""Subjects: a function as an op's kernel, on its device."""

import pytest

from perfci.device import open_device
from perfci.extensions.lab.soak.subject import SoakSubject, open_endurance
from perfci.ops.spec import Performance


def described(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


@pytest.fixture
def subject():
    """Makes a subject of a kernel and its inputs; the reference is the kernel unless it is given."""

    def make(kernel, make_inputs, *, reference=None, device="fake", deterministic=True, params=None, **suite):
        opened = open_device(device, seed=1, fake={"spike_share": 0.0})
        params = params or {"rows": 4}
        performance = Performance(kernel, reference or kernel, make_inputs, [params], **suite)
        endurance = open_endurance(opened)
        return SoakSubject("op", performance, params, opened, endurance, 7, deterministic, lambda *_: None, described)

    return make
