"""Calls captured in a graph and replayed with other inputs."""

import time

import numpy as np
import pytest

from perfci.device.fake import FakeDevice, FakeSpec
from perfci.extensions.beyond.graphs import check_graphs, find_capture
from perfci.extensions.beyond.least import Shrinker, keep
from perfci.ops.spec import Accuracy, grid


def describe(error):
    return {"error": type(error).__name__, "message": str(error), "file": "op.py", "line": 1}


def make_inputs(rows, cols, device, seed):
    return {"x": np.random.default_rng(seed).standard_normal((rows, cols)).astype("float32")}


LAUNCHES: list = []


def launch(function):
    """What a kernel's launch is here: it is done at once, and a capture hears of it."""
    LAUNCHES.append(function)
    function()


class Recorded:
    """A graph of what was launched: a replay does that again, and nothing of what the host did."""

    def __init__(self, call):
        call()
        LAUNCHES.clear()
        call()
        self.launches = len(LAUNCHES)
        LAUNCHES.clear()
        self.output = call()
        self._work = [*LAUNCHES]

    def replay(self):
        for function in self._work:
            function()
        return len(self._work)


def double(x):
    out = np.empty_like(x)
    launch(lambda: np.multiply(x, 2, out=out))
    return out


def check(kernel, capture=Recorded, shrink=keep, **stated):
    suite = Accuracy(kernel, lambda x: 2 * x, make_inputs, grid(rows=[3], cols=[4]), **{"graph": True, **stated})
    return list(check_graphs(suite, FakeDevice(FakeSpec(), 1), None, describe, capture, shrink))


def test_a_call_that_launches_all_it_does_is_right():
    (result,) = check(double)

    assert result.failure is result.unchecked is None


def test_a_graph_that_skips_the_launch_is_wrong():
    kept = {}

    def launches_first_calls_only(x):
        """A cache that a capture fills from calls before it, as in flashinfer-bench#414."""
        if len(kept) < 2:
            kept[len(kept)] = double(x)
            return kept[len(kept) - 1]
        return kept[1].copy()

    (result,) = check(launches_first_calls_only)

    assert result.failure.kind == "wrong_replay"
    assert (result.failure.facts["launches"], result.failure.facts["of"]) == (0, 1)


def test_the_smallest_case_whose_replay_is_wrong_is_looked_for():
    def launches_in_parts(x):
        """The columns past two are the host's."""
        out = 2 * x
        launch(lambda: np.multiply(x[:, :2], 2, out=out[:, :2]))
        return out

    given = []
    (wrong, *_) = check(launches_in_parts, shrink=lambda *args: given.append(args) or iter(()))
    ((result, made, judge, _),) = given
    suite = Accuracy(launches_in_parts, lambda x: 2 * x, make_inputs, grid(rows=[3], cols=[4]), graph=True)
    shrinker = Shrinker(suite, FakeDevice(FakeSpec(), 1), result, describe, time.monotonic() + 30, judge, fills=False)

    assert wrong.failure.kind == "wrong_replay"
    assert shrinker.shrink(made).check.params == {"rows": 1, "cols": 3}


def test_work_of_the_host_is_not_replayed():
    def scales_on_the_host(x):
        factor, out = 2.0 * np.sign(x[0, 0]) ** 2 * x[0, 0] / x[0, 0].item(), np.empty_like(x)
        offset = float(x[0, 0])
        launch(lambda: np.copyto(out, factor * x + (x[0, 0] - offset)))
        return out

    assert check(scales_on_the_host)[0].failure.kind == "wrong_replay"


def test_what_the_host_read_of_the_first_inputs_is_found_though_it_does_for_the_second():
    def clamps_to_what_the_host_read(x):
        out, most = np.empty_like(x), 2 * x.max()
        launch(lambda: np.minimum(2 * x, most, out=out))
        return out

    assert make_inputs(3, 4, "cpu", 1)["x"].max() <= make_inputs(3, 4, "cpu", 0)["x"].max()
    assert check(clamps_to_what_the_host_read)[0].failure.kind == "wrong_replay"


def test_a_replay_with_fewer_launches_is_named_though_its_answer_is_right():
    calls = []

    def checks_in_first_calls(x):
        calls.append(1)
        if len(calls) <= 2:
            launch(lambda: None)
        return double(x)

    assert check(checks_in_first_calls)[0].failure.kind == "graph_lacks_launch"


def test_an_error_in_the_capture_is_an_error():
    def refuses(x):
        raise RuntimeError("operation not permitted when stream is capturing")

    assert check(refuses)[0].raised


def test_a_device_without_graphs_leaves_it_unchecked():
    (result,) = check(double, find_capture(FakeDevice(FakeSpec(), 1)))

    assert (result.failure, result.unchecked.kind) == (None, "graph_unchecked")
    assert check(double, graph=False) == []


@pytest.mark.cuda
def test_a_graph_of_cuda_shows_a_launch_that_it_skips():
    import torch

    from perfci.device import open_device
    from perfci.extensions.beyond.cuda_graphs import CudaGraph

    def make(rows, cols, device, seed):
        generator = torch.Generator(device).manual_seed(seed)
        return {"x": torch.randn(rows, cols, generator=generator, device=device)}

    kept = {}

    def keeps(x):
        return (
            kept.setdefault(x.shape, 2 * x) + 0 if not torch.cuda.is_current_stream_capturing() else kept[x.shape] + 0
        )

    device = open_device("cuda", seed=0)
    failures = [
        list(
            check_graphs(
                Accuracy(kernel, lambda x: 2 * x, make, grid(rows=[33], cols=[100]), graph=True),
                device,
                None,
                describe,
                CudaGraph,
            )
        )
        for kernel in (lambda x: 2 * x, keeps)
    ]

    assert failures[0][0].failure is None
    assert failures[1][0].failure.kind == "wrong_replay"
