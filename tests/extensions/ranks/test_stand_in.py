"""`perfci static` compiles an op of several ranks as each rank of its groups, without a group."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")
pytestmark = pytest.mark.torch

KERNEL = '''"""Adds the number of ranks to what lies in memory that peers reach."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symmetric
import triton
import triton.language as tl


def shift(x):
    """One launch for each other rank."""
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    out = torch.empty_like(x)
    if ranks > 1:
        memory = symmetric.empty(x.numel(), dtype=x.dtype, device=x.device)
        places = symmetric.rendezvous(memory, dist.group.WORLD).buffer_ptrs
        assert len(places) == ranks
        dist.all_gather_into_tensor(x.new_empty(ranks * x.numel()), x)
    for _ in range(max(ranks - 1 - rank % 2, 1)):
        _shift_kernel[(1,)](x, out, RANKS=ranks)
    return out


@triton.jit
def _shift_kernel(x_ptr, out_ptr, RANKS: tl.constexpr):
    at = tl.arange(0, 64)
    tl.store(out_ptr + at, tl.load(x_ptr + at) + RANKS)
'''
BASELINE = '''"""The same in torch."""

import torch


def shift(x):
    """Adds one."""
    return x + 1


def make_inputs(m, dtype, device, seed, rank=0, ranks=1):
    """64 numbers."""
    return {"x": torch.ones(m, dtype=dtype, device=device)}
'''
SUITE = '''"""A suite of shift."""

import perfci
import torch
from shift_baseline import make_inputs, shift as reference
from shift_triton import shift as kernel

{name} = perfci.{kind}(
    kernel=kernel, reference=reference, make_inputs=make_inputs, cases=perfci.grid(m=[64], dtype=[torch.float32]),{more}
)
'''


def git(folder, *arguments):
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *arguments], cwd=folder, check=True)


@pytest.fixture
def project(tmp_path):
    """An op for groups of 2 and 4, committed as `main`."""
    place = tmp_path / "kernels" / "shift"
    place.mkdir(parents=True)
    suites = {
        "accuracy": SUITE.format(name="accuracy", kind="Accuracy", more=" ranks=(2, 4),"),
        "performance": SUITE.format(name="performance", kind="Performance", more=""),
    }
    for part, text in {"triton": KERNEL, "baseline": BASELINE, **suites}.items():
        (place / f"shift_{part}.py").write_text(text)
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (tmp_path / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "shift")
    return tmp_path


def compile_op(project):
    """Verdict of each case, and the launches of each."""
    command = [sys.executable, "-m", "perfci", "static", "--target", "sm_90", "--against", "main"]
    done = subprocess.run(
        [*command, "--project", str(project)], capture_output=True, text=True, check=False,
        env={**os.environ, "TRITON_CACHE_DIR": str(project / "reports" / "triton")},
    )  # fmt: skip
    run = json.loads((project / "reports" / "static" / "run.json").read_text())
    (op,) = run["static"]["ops"]
    return done, {case["case"]: case["identity"] for case in op["cases"]}


@pytest.mark.nightly
def test_a_change_that_groups_of_one_size_alone_launch_is_seen_on_each_of_their_ranks(project):
    path = project / "kernels" / "shift" / "shift_triton.py"
    path.write_text(path.read_text().replace("+ RANKS)", "+ RANKS * (1 + RANKS // 4))"))
    done, cases = compile_op(project)

    ranks = [(size, rank) for size in (2, 4) for rank in range(size)]
    assert [*cases] == ["m=64,dtype=float32", *(f"ranks={n},rank={at},m=64,dtype=float32" for n, at in ranks)]
    assert not [identity for identity in cases.values() if identity.get("unknown")], done.stderr
    counts = {case: len(identity["launches"]) for case, identity in cases.items()}
    assert [counts[f"ranks=4,rank={at},m=64,dtype=float32"] for at in range(4)] == [3, 2, 3, 2]
    said = " ".join(done.stdout.split())
    assert "UNCHANGED shift" in said
    assert "3 cases do the same device work on sm_90" in said
    assert "4 cases" in said
