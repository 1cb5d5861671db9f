"""Which edits of an op change its identity, and which do not: every revision is a separate op, compiled offline."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from tests import triton_versions
from tests.static_ops import AUTOTUNED, BASELINE, HEADER, LOOP, SCALE, compiled, edited, run, write

pytestmark = [pytest.mark.torch, pytest.mark.slow]

TRANSPOSED = edited(SCALE, ("    n = x.numel()\n", "    x = x.view(64, 64).t()\n    n = x.numel()\n"))
OPERATOR = """@torch.library.custom_op("perfci_{op}::scale", mutates_args=())
def scale(x: torch.Tensor) -> torch.Tensor:
"""
CUSTOM = edited(SCALE, ("def {op}(x):\n", OPERATOR)) + (
    "\n\n@scale.register_fake\ndef _(x):\n    return torch.empty_like(x)\n"
    "\n\ndef {op}(x):\n    return torch.ops.perfci_{op}.scale(x)\n"
)
CHOOSING = edited(
    SCALE,
    ("def _scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):", "def _scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr, F):"),
    ("x * 2.0", "F(x)"),
    ("BLOCK=256", "BLOCK=256, F=_double"),
    ("\n@triton.jit\n", "\n@triton.jit\ndef _double(x):\n    return x * 2.0\n\n\n@triton.jit\n"),
    ("F):", "F: tl.constexpr):"),
)
HELPED = BASELINE.replace(
    "import torch\n", "import torch\n\nSPREAD = 1.0\n\n\ndef spread():\n    return SPREAD\n"
).replace("device=device)}}", "device=device) * spread()}}")

REVISIONS = {
    "scale": SCALE,
    "commented": edited(
        SCALE,
        ("@triton.jit\n", "# Doubles.\n@triton.jit\n"),
        ("    x = tl.load", "    # here\n    x = tl.load"),
        ("def {op}(x):\n", 'def {op}(x):\n    """Doubles."""\n'),
    ),
    "moved": edited(
        SCALE, ("\n\n@triton.jit", "\n\nUNUSED = 1\n\n\ndef unused():\n    return UNUSED\n\n\n@triton.jit")
    ),
    "constant": edited(SCALE, ("x * 2.0", "x * 3.0")),
    "cloned": edited(SCALE, ("    n = x.numel()\n", "    x = x.clone()\n    n = x.numel()\n")),
    "grid": edited(SCALE, ("triton.cdiv(n, 256)", "triton.cdiv(n, 128)")),
    "warps": edited(SCALE, ("BLOCK=256)", "BLOCK=256, num_warps=8)")),
    "in_place": edited(SCALE, ("(x, out, n, BLOCK", "(x, x, n, BLOCK")),
    "synchronized": edited(SCALE, ("    return out", "    torch.cuda.synchronize()\n    return out")),
    "synchronized_before": edited(SCALE, ("    n = x.numel()\n", "    torch.cuda.synchronize()\n    n = x.numel()\n")),
    "on_a_stream": edited(
        SCALE, ("    return out", "    with torch.cuda.stream(torch.cuda.Stream()):\n        pass\n    return out")
    ),
    "misaligned": edited(SCALE, ("    n = x.numel()\n", "    x = x[1:]\n    n = x.numel() - 3\n")),
    "loop": LOOP,
    "loop_longer": edited(LOOP, ("x.numel(), 4, BLOCK", "x.numel(), 5, BLOCK")),
    "transposed": TRANSPOSED,
    "made_dense": edited(TRANSPOSED, (".t()", ".t().contiguous()")),
    "autotuned": AUTOTUNED,
    "autotuned_commented": edited(AUTOTUNED, ("    if BLOCK > 256:", "    # only one of them\n    if BLOCK > 256:")),
    "other_branch": edited(AUTOTUNED, ("x = x + 0.0", "x = x + 1.0")),
    "other_constant": edited(AUTOTUNED, ("tl.constexpr(2.0)", "tl.constexpr(4.0)")),
    "other_helper": edited(AUTOTUNED, ("return x * FACTOR", "return FACTOR * x")),
    "other_config": edited(AUTOTUNED, ('"BLOCK": 512}, num_warps=8', '"BLOCK": 512}, num_warps=4')),
    "other_heuristic": edited(AUTOTUNED, ('% args["BLOCK"] == 0', '% (2 * args["BLOCK"]) == 0')),
    "other_grid": edited(AUTOTUNED, ('meta["BLOCK"]),)', 'meta["BLOCK"]) + meta["BLOCK"] // 512,)')),
    "custom": CUSTOM,
    "custom_changed": edited(CUSTOM, ("x * 2.0", "x * 3.0")),
    "choosing": CHOOSING,
}
BASELINES = {
    "inputs_commented": BASELINE.replace("import torch\n", "import torch  # the one\n").replace(
        "    generator =", "    # drawn anew\n    generator ="
    ),
    "inputs_other": BASELINE.replace("torch.randn", "torch.rand"),
    "inputs_helped": HELPED,
    "inputs_helped_moved": HELPED.replace("\n\nSPREAD", "\n\n# how far\n\n\nSPREAD"),
    "inputs_helper_changed": HELPED.replace("SPREAD = 1.0", "SPREAD = 2.0"),
}


@pytest.fixture(scope="module")
def identities(tmp_path_factory):
    """Identity of every revision's only case; "elsewhere" is `scale` again, in another folder, process and cache."""
    root = tmp_path_factory.mktemp("revisions")
    for op, text in REVISIONS.items():
        write(root, op, text)
    for op, text in BASELINES.items():
        write(root, op, SCALE, baseline=text)
    names = [*REVISIONS, *BASELINES]
    statics = compiled(run(root, names, "sm_90", tmp_path_factory.mktemp("cache")))
    other = tmp_path_factory.mktemp("elsewhere") / "deep" / "below"
    for op in ("scale", "autotuned", "choosing"):
        write(other, op, REVISIONS[op])
    again = compiled(run(other, ["scale", "autotuned", "choosing"], "sm_90", tmp_path_factory.mktemp("cache")))
    everything = {**statics, **{f"elsewhere_{op}": static for op, static in again.items()}}
    assert all(not case["failure"] for static in everything.values() for case in static["cases"])
    return {op: static["cases"][0]["identity"] for op, static in everything.items()}


def renamed(identity, op):
    """The custom operator has the op's name in its own, since two of one name cannot live in a process."""
    return json.loads(json.dumps(identity).replace(f"perfci_{op}.", "perfci."))


@pytest.mark.parametrize("op", [*REVISIONS, *BASELINES])
def test_everything_here_can_be_captured(op, identities):
    if op == "choosing" and not triton_versions.CALLABLES:
        pytest.skip("Triton before 3.3 takes no functions as constants")
    assert identities[op]["unknown"] is None


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("scale", "commented"),
        ("scale", "moved"),
        ("scale", "elsewhere_scale"),
        ("autotuned", "autotuned_commented"),
        ("autotuned", "elsewhere_autotuned"),
        ("choosing", "elsewhere_choosing"),
        ("scale", "inputs_commented"),
        ("inputs_helped", "inputs_helped_moved"),
    ],
)
def test_comments_lines_and_folders_are_not_identity(before, after, identities):
    assert identities[before] == identities[after]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("scale", "constant"),
        ("scale", "cloned"),
        ("scale", "grid"),
        ("scale", "warps"),
        ("scale", "in_place"),
        ("scale", "synchronized"),
        ("synchronized", "synchronized_before"),
        ("scale", "on_a_stream"),
        ("scale", "misaligned"),
        ("loop", "loop_longer"),
        ("transposed", "made_dense"),
        ("autotuned", "other_branch"),
        ("autotuned", "other_constant"),
        ("autotuned", "other_helper"),
        ("autotuned", "other_config"),
        ("autotuned", "other_heuristic"),
        ("autotuned", "other_grid"),
        ("custom", "custom_changed"),
        ("scale", "inputs_other"),
        ("inputs_helped", "inputs_helper_changed"),
    ],
)
def test_what_the_device_may_feel_is_identity(before, after, identities):
    assert renamed(identities[before], before) != renamed(identities[after], after)


def test_a_launch_is_told_whole(identities):
    (launch,) = identities["scale"]["launches"]

    assert launch["kernel"] == "_scale"
    assert launch["grid"] == [16, 1, 1]
    assert (launch["warps"], launch["stages"]) == (4, 3)
    assert launch["arguments"] == {
        "x_ptr": "#0 float32[4096](1)@16",
        "out_ptr": "#1 float32[4096](1)@16",
        "n": "4096",
        "BLOCK": "256",
    }


def test_operations_stand_in_order_with_the_launches_among_them(identities):
    assert [text.split("(")[0] for text in identities["synchronized_before"]["operations"]] == [
        "aten.empty_like.default",
        "torch.cuda_synchronize",
        "launch _scale",
    ]


def test_the_body_of_a_python_operator_is_looked_into(identities):
    names = [text.split("(")[0] for text in identities["custom"]["operations"]]

    assert names == ["perfci_custom.scale.default", "aten.empty_like.default", "launch _scale"]


def test_every_candidate_of_an_autotuner_is_told(identities):
    choices = identities["autotuned"]["choices"]

    assert [text.split(",")[0] for text in choices[1:]] == [
        "_tuned: perhaps BLOCK: 64",
        "_tuned: perhaps BLOCK: 512",
        "_tuned: BLOCK: 64",
    ]
    assert "grid (8, 1, 1)" in choices[2]
    assert "'EVEN': True" in choices[2]


# --- live -------------------------------------------------------------------------------------------------------------

OPAQUE = {
    "graphed": (
        HEADER
        + """
graph = torch.cuda.CUDAGraph()
room = torch.zeros(4096, device="cuda")
with torch.cuda.graph(graph):
    out = room * 2


def {op}(x):
    room.copy_(x)
    graph.replay()
    return out
""",
        "a CUDA graph",
    ),
    "compiled": (
        HEADER + "\nscale = torch.compile(lambda x: x * 2)\n\n\ndef {op}(x):\n    return scale(x)\n",
        "torch.compile",
    ),
}
LIVE = """
    import json, sys
    from pathlib import Path

    from perfci.core.codec import encode
    from perfci.device import open_device
    from perfci.device.source import inputs_digest
    from perfci.measure.inputs import bound_inputs
    from perfci.worker.load import load_op

    device = open_device("cuda", seed=1)
    found = {}
    for op in sys.argv[2:]:
        suite = load_op(op, Path(sys.argv[1]) / op, Path(sys.argv[1])).performance
        inputs = bound_inputs(suite, suite.cases[0], "cuda", 1)
        suite.kernel(**inputs)
        for turn in range(2):
            with device.peak_memory() as peak, device.capture_work() as capture:
                suite.kernel(**inputs)
            identity = capture.identity(inputs_digest(suite.make_inputs))
            facts = json.loads(encode(identity)) | {"sources": capture.sources, "peak": peak.bytes}
            found[op if turn else f"{op}_before"] = facts
    print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    root = tmp_path_factory.mktemp("live")
    ops = ["scale", "cloned", "synchronized", "on_a_stream", "loop", "autotuned", "custom", "misaligned", "choosing"]
    for op in ops:
        write(root, op, REVISIONS[op])
    for op, (text, _) in OPAQUE.items():
        write(root, op, text)
    environment = os.environ | {
        "TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("cache")),
        "TRITON_DISABLE_LINE_INFO": "1",
    }
    command = [sys.executable, "-c", textwrap.dedent(LIVE), str(root), *ops, *OPAQUE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return root, ops, json.loads(done.stdout)


@pytest.mark.cuda
def test_live_and_offline_launches_are_the_same(live, tmp_path):
    import torch

    from perfci.extensions.common.targets import TARGETS

    target = "sm_{}{}".format(*torch.cuda.get_device_capability())
    if target not in TARGETS:
        target = "sm_90"
    root, ops, statics = live
    offline = compiled(run(root, ops, target, tmp_path))

    for op in [op for op in ops if op != "autotuned"]:
        there = offline[op]["cases"][0]["identity"]
        assert statics[op]["launches"] == there["launches"], op
        assert statics[op]["inputs"] == there["inputs"], op
        assert len(statics[op]["operations"]) == len(there["operations"]), op


@pytest.mark.cuda
def test_a_live_tuners_choice_is_told_and_its_trials_are_not(live):
    _, _, statics = live
    tuned = statics["autotuned"]

    assert [text.split(":")[0] for text in tuned["choices"]] == ["_tuned"]
    assert [launch["kernel"] for launch in tuned["launches"]] == ["_tuned"]


@pytest.mark.cuda
def test_live_sources_and_memory_are_told(live):
    root, _, statics = live

    assert statics["scale"]["sources"] == [str(root / "scale" / "scale_triton.py")]
    assert statics["cloned"]["peak"] - statics["scale"]["peak"] == 4096 * 4
    assert "torch.cuda_synchronize()" in statics["synchronized"]["operations"]
    assert "torch.cuda_setStream()" in statics["on_a_stream"]["operations"]


@pytest.mark.cuda
@pytest.mark.parametrize("op", OPAQUE)
def test_live_code_that_cannot_be_told_apart_is_unknown(op, live):
    _, _, statics = live
    unknown = statics[op]["unknown"]

    assert unknown["kind"] == "captured_opaque"
    assert unknown["facts"]["what"] == OPAQUE[op][1]
    assert unknown["facts"]["file"] == f"{op}_triton.py"
