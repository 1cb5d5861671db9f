"""How long an agent waits for each answer of `perfci mcp`: briefs, rounds one after the other, and a profile.

    python benchmarks/agent_rounds.py [--op vector_add] [--device auto] [--rounds 5] [--out FILE]

The server's tools are asked in this process, in a copy of this project: what the protocol adds is left out, and so
the package mcp is not needed. Each round launches the op's kernel with another number of warps, so it is compiled anew,
verified in whole and duelled. The first request also starts the process that workers are forked from. --device fake
tries a made-up op, without torch.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from pathlib import Path

from speed import git, machine

from perfci.cli.demo import write_project
from perfci.core.settings import load
from perfci.extensions.agents.server import Tools

ROOT = Path(__file__).resolve().parents[1]
WARPS = (2, 8, 1, 16, 4)
EDITS = {"fake": (r"US_PER_MEGABYTE = [\d.]+", "US_PER_MEGABYTE = {}00.5")}
KERNEL = (r"num_warps=[\w.]+", "num_warps={}")


def measure(root: Path, op: str, device: str, rounds: int) -> list[tuple[str, str, float]]:
    """What was asked, what was answered, and seconds."""
    [kernel] = (root / "kernels").glob(f"**/{op}_triton.py")
    pattern, text = EDITS.get(device, KERNEL)
    tools, answers = Tools(load(root), device, 3600.0, lambda _: None), []

    def ask(name: str, shown: str, **arguments: str) -> None:
        began = time.monotonic()
        answer = tools.call(name, {"op": op, **arguments})
        answers.append((shown, answer.get("verdict", ""), time.monotonic() - began))

    ask("brief", "brief, the first request")
    ask("brief", "brief, again")
    for number in range(rounds):
        warps = WARPS[number % len(WARPS)]
        kernel.write_text(re.sub(pattern, text.format(warps), kernel.read_text(encoding="utf-8")), encoding="utf-8")
        ask("try", f"try, {warps} warps", why=f"{warps} warps")
    ask("profile", "profile")
    return answers


def main(arguments: list[str] | None = None) -> str:
    """Measure, print a table, and return it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--op")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--rounds", type=int, default=5, help="5 at most, as many as a start has")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "project"
        if asked.device == "fake":
            write_project(root)
        else:
            shutil.copytree(ROOT / "kernels", root / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
            (root / "pyproject.toml").write_text("[tool.perfci]\n", encoding="utf-8")
        (root / ".gitignore").write_text("reports/\n__pycache__/\n", encoding="utf-8")
        git(root, "init", "-q")
        git(root, "add", "--all")
        git(root, "commit", "-q", "-m", "start")
        op = asked.op or ("scale" if asked.device == "fake" else "vector_add")
        answers = measure(root, op, asked.device, asked.rounds)
    lines = [f"{op} on {machine()}", "", "| asked | answer | seconds |", "| --- | --- | ---: |"]
    lines += [f"| {shown} | {said} | {seconds:.2f} |" for shown, said, seconds in answers]
    text = "\n".join(lines)
    print(text)
    if asked.out:
        asked.out.write_text(text + "\n", encoding="utf-8")
    return text


if __name__ == "__main__":
    main()
