"""`perfci soak` over ops: one in Triton's interpreter, planted faults and huge shapes on a GPU."""

import json
import os
from pathlib import Path

import pytest

from perfci.cli.main import run

if "CI" not in os.environ:  # in CI a missing package is a failure
    pytest.importorskip("torch")

import torch

from perfci.device import open_device
from perfci.extensions.lab.soak.calls import check_determinism, check_memory, check_streams, check_threads
from perfci.extensions.lab.soak.huge import check_large
from perfci.extensions.lab.soak.subject import SoakSubject, open_endurance
from perfci.extensions.lab.soak.verdicts import Status, conclude
from perfci.ops.spec import Accuracy, Performance, grid

ROOT = Path(__file__).parents[2]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:.*Profiler clears events.*"),
]


def soaked(capsys, tmp_path, *options):
    """Of the project's ops, with the reports elsewhere."""
    (tmp_path / "pyproject.toml").write_text(f'[tool.perfci]\nkernels = "{ROOT / "kernels"}"\n')
    capsys.readouterr()
    code = run(["soak", "--format", "json", "--seed", "3", "--project", str(tmp_path), *options])
    seen = capsys.readouterr()
    assert code in {0, 2}, seen.err
    return code, json.loads(seen.out)["findings"]


def test_nothing_is_soaked_without_an_accelerator(capsys, tmp_path):
    (tmp_path / "pyproject.toml").write_text(f'[tool.perfci]\nkernels = "{ROOT / "kernels"}"\n')

    assert run(["soak", "--device", "cpu", "--project", str(tmp_path), "broadcast"]) == 1
    assert "Nothing can be soaked without an accelerator" in " ".join(capsys.readouterr().err.split())


# --- on a GPU ---------------------------------------------------------------------------------------------------------

SIZE = 1 << 22


def inputs(size, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    return {"x": torch.randn(size, generator=generator, device=device)}


def double(x):
    return x * 2


@pytest.fixture
def subject():
    def make(kernel, reference=double, size=SIZE, **suite):
        device = open_device("cuda", seed=1)
        performance = Performance(kernel, reference, inputs, grid(size=[size]), **suite)
        endurance = open_endurance(device)
        described = lambda error: {"error": type(error).__name__, "message": str(error), "file": "-", "line": 0}  # noqa: E731
        return SoakSubject("op", performance, {"size": size}, device, endurance, 5, True, lambda *_: None, described)

    return make


@pytest.mark.cuda
def test_a_kernel_on_the_current_stream_passes_streams_threads_and_many_calls(subject):
    checks = [check_streams(subject(double)), check_threads(subject(double)), check_determinism(subject(double), 100)]
    checks = [conclude(check, 100, 0.03) for check in checks]

    assert [check.status for check in checks] == [Status.PASS] * 3, checks
    assert checks[0].numbers["late"] is True


@pytest.mark.cuda
def test_a_kernel_on_the_default_stream_whichever_is_current_is_found(subject):
    def stubborn(x):
        with torch.cuda.stream(torch.cuda.default_stream()):
            return x * 2

    assert check_streams(subject(stubborn)).reason.kind == "soak_stream_side"


@pytest.mark.cuda
def test_a_workspace_that_calls_on_several_streams_share_is_found(subject):
    workspace = torch.empty(SIZE, device="cuda")

    def sharing(x):
        workspace.copy_(x)
        torch.cuda._sleep(10_000_000)
        return workspace * 2

    assert check_streams(subject(sharing)).status is Status.FAIL
    assert check_threads(subject(sharing)).status is Status.FAIL


@pytest.mark.cuda
def test_outputs_kept_in_a_global_are_a_leak_and_a_bounded_cache_is_none(subject):
    kept = []

    def keeping(x):
        kept.append(x[:1024] * 2)
        return x * 2

    memory = conclude(check_memory(subject(keeping), 200), 200, 0.03)
    assert (memory.status, memory.reason.kind) == (Status.FAIL, "soak_leak")
    assert memory.numbers["rate"] == 4096
    kept.clear()

    def caching(x):
        if len(kept) < 60:
            kept.append(x[:1024] * 2)
        return x * 2

    assert conclude(check_memory(subject(caching), 200), 200, 0.03).status is Status.PASS


@pytest.mark.cuda
def test_an_index_of_32_bits_is_found_beyond_2_to_the_31(subject):
    def wrapping(x):
        out = x * 2
        if x.numel() > 1 << 31:
            out[1 << 31 :] = 0
        return out

    size = (1 << 31) + 4096
    needed = 4 * 4 * size
    if torch.cuda.mem_get_info()[0] < needed:
        pytest.fail(f"{needed} bytes of device memory are not free here")
    accuracy = Accuracy(wrapping, double, inputs, grid(size=[1000, 2000]))

    large = conclude(check_large(subject(wrapping, size=size), accuracy), 3, 0.03)
    assert (large.status, large.reason.kind) == (Status.FAIL, "soak_large")
    large = conclude(check_large(subject(double, size=size), accuracy), 3, 0.03)
    assert (large.status, large.numbers["elements"]) == (Status.PASS, size)


@pytest.mark.cuda
@pytest.mark.slow
@pytest.mark.parametrize("op", ["broadcast", "bias_relu", "softmax", "vector_add", "gelu", "layer_norm", "rms_norm"])
def test_ops_are_right_beyond_2_to_the_32_elements(capsys, tmp_path, op):
    pattern = "rows=4194309" if op not in {"vector_add", "gelu"} else "shape=4294968321"

    code, findings = soaked(capsys, tmp_path, "--device", "cuda", op, "--case", pattern)

    large = [finding for finding in findings if finding["test"] == "large" and finding["case"]]
    assert code == 0, findings
    assert [check["status"] for check in large] == ["PASS"]
    assert large[0]["numbers"]["elements"] > 1 << 32
