"""A project for the fake device with one op of several ranks, and what is planted in it."""

import subprocess
from pathlib import Path

KERNEL = '''"""An op that sends what it has, computes its part meanwhile, waits, and computes the rest."""

from perfci.device.fake import group, send, wait, work


def talk(x):
    """Takes the time of two halves and of what is not hidden of a message."""
    for ahead in range(1, group.ranks):
        send(16e6 / (group.ranks - 1), (group.rank + ahead) % group.ranks)
    work(60.0)
    wait()
    work(60.0)
    return x + 0.0
'''

BASELINE = '''"""The same, one thing after another."""

import numpy as np

from perfci.device.fake import group, send, wait, work


def talk(x):
    """Sends, waits, computes."""
    for ahead in range(1, group.ranks):
        send(16e6 / (group.ranks - 1), (group.rank + ahead) % group.ranks)
    wait()
    work(120.0)
    return x + 0.0


def make_inputs(m, dtype, device, seed, rank=0, ranks=1):
    """Numbers of one rank."""
    return {"x": np.random.default_rng((seed, rank)).normal(size=m // ranks)}
'''

ACCURACY = '''"""Accuracy of talk."""

import perfci
from talk_baseline import make_inputs, talk as reference
from talk_triton import talk as kernel

accuracy = perfci.Accuracy(
    kernel=kernel, reference=reference, make_inputs=make_inputs, cases=perfci.grid(m=[64], dtype=["float32"]),
    ranks=(2, 4),
)
'''

PERFORMANCE = '''"""Performance of talk."""

import perfci
from perfci.device.fake import send, group, wait, work
from talk_baseline import make_inputs, talk as reference
from talk_triton import talk as kernel


def communicate(x):
    """What is sent, alone."""

    def call():
        for ahead in range(1, group.ranks):
            send(16e6 / (group.ranks - 1), (group.rank + ahead) % group.ranks)
        wait()

    return call


performance = perfci.Performance(
    kernel=kernel, reference=reference, make_inputs=make_inputs, cases=perfci.grid(m=[64, 128], dtype=["float32"]),
    flops=lambda m, dtype: 12_000_000_000,
)
traffic = perfci.Traffic(
    sent=lambda m, dtype, ranks: 16_000_000, activations=lambda m, dtype: (m, 64, 4),
    communicate=communicate, compute=lambda x: lambda: work(120.0),
)
'''

FILES = {"triton": KERNEL, "baseline": BASELINE, "accuracy": ACCURACY, "performance": PERFORMANCE}

PLANTED = {
    "one rank": ("    return x", "    work(3.6 * (group.rank == 1))\n    return x"),
    "all ranks": ("    return x", "    work(3.6)\n    return x"),
    "lost overlap": ("    work(60.0)\n    wait()\n    work(60.0)", "    wait()\n    work(120.0)"),
    "twice the message": ("16e6", "32e6"),
    "a hidden message": ("16e6", "20e6"),
}
"""name -> text of the kernel, and what stands there in its place"""


def make_project(folder: Path, *, devices: int = 1, extra: str = "") -> Path:
    """Write and commit the project."""
    place = folder / "kernels" / "talk"
    place.mkdir(parents=True)
    for part, text in FILES.items():
        (place / f"talk_{part}.py").write_text(text)
    (folder / "pyproject.toml").write_text(f"[tool.perfci.fake]\ndevices = {devices}\n{extra}")
    (folder / ".gitignore").write_text("reports/\n__pycache__/\n")
    git(folder, "init", "-q", "-b", "main")
    commit(folder)
    return folder


def plant(folder: Path, name: str) -> None:
    """Change the kernel, and commit it on a branch."""
    path, (before, after) = folder / "kernels" / "talk" / "talk_triton.py", PLANTED[name]
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    git(folder, "checkout", "-q", "-b", "change")
    commit(folder)


def commit(folder: Path) -> None:
    """Commit everything."""
    git(folder, "add", "-A")
    git(folder, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-q", "-m", "change")


def git(folder: Path, *arguments: str) -> None:
    """Run git in a folder."""
    subprocess.run(["git", *arguments], cwd=folder, check=True)
