"""Replays commits of another project's kernels as merge requests, each beside its parent, on a CPU.

    python benchmarks/library_replays.py liger GIT_DIR [--commits 20] [--op rms_norm ...] [--only COMMIT ...]

GIT_DIR is a clone of the library, bare or not. A project is written for each commit that changes one of the ops in
`library_ops/`: the library's source at the parent as its base, the commit as the change, and over both the same suites,
which are this repository's. Then `perfci check --against HEAD^` judges: accuracy in Triton's interpreter, and what both
compile to. A row of Markdown for each op is printed and appended to the table: what perfci said, and what the commit
said of itself. Read every verdict but PASS and UNCHANGED by hand.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
Op = Mapping[str, Any]
AUTHOR = ("-c", "user.name=replay", "-c", "user.email=replay@example.com")
HEADER = "| commit | date | op | verdicts | perfci says | the commit's message | s |\n" + "| --- " * 7 + "|\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("library", help="module in library_ops/")
    parser.add_argument("git", type=Path, help="its git directory")
    parser.add_argument("--commits", type=int, default=20, help="at most so many, spread over the history")
    parser.add_argument("--op", action="append", default=[], help="only these")
    parser.add_argument("--ops", type=int, default=3, help="at most so many ops of a commit")
    parser.add_argument("--only", action="append", default=[], metavar="COMMIT")
    parser.add_argument("--skip", type=int, default=0, help="leave out so many of these commits, the newest")
    parser.add_argument("--limit", type=float, default=240.0, help="seconds of one commit")
    parser.add_argument("--out", type=Path, default=Path("replays.md"))
    parser.add_argument("--keep", type=Path, help="folder to keep the projects in")
    parser.add_argument("--python", default=sys.executable, help="with perfci, torch and what the library imports")
    chosen = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    library = importlib.import_module(f"library_ops.{chosen.library}")
    ops = {name: op for name, op in library.OPS.items() if not chosen.op or name in chosen.op}
    commits = list(chosen.only) or spread(find_commits(chosen.git, library, ops), chosen.commits)[chosen.skip :]
    counts: Counter[str] = Counter()
    if not chosen.out.exists():
        chosen.out.write_text(HEADER)
    with tempfile.TemporaryDirectory() as temporary:
        for commit in commits:
            folder = (chosen.keep or Path(temporary)) / commit[:10]
            for row in replay(commit, folder, chosen, library, ops):
                counts[row[3]] += 1
                line = "| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in row) + " |"
                print(line, flush=True)
                with chosen.out.open("a") as table:
                    table.write(line + "\n")
            if not chosen.keep:
                subprocess.run(["rm", "-rf", folder], check=False)
    print(f"{len(commits)} commits:", ", ".join(f"{count} {name}" for name, count in counts.most_common()))


def git(where: Path, *arguments: str) -> str:
    return subprocess.run(["git", "-C", where, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def find_commits(where: Path, library: Any, ops: Mapping[str, Op]) -> list[str]:
    """Commits with one parent that change the file of an op, or what the ops of the library share, the newest first."""
    paths = sorted({op["path"] for op in ops.values()}) + list(getattr(library, "ALSO", ()))
    since = [f"--since={library.SINCE}"] if hasattr(library, "SINCE") else []
    return git(where, "log", "--no-merges", "--min-parents=1", "--format=%H", *since, "--", *paths).split()


def spread(commits: list[str], most: int) -> list[str]:
    """So many of the commits at equal distances, the newest first."""
    step = max(1.0, len(commits) / most)
    return [commits[int(number * step)] for number in range(min(most, len(commits)))]


def replay(
    commit: str, folder: Path, chosen: argparse.Namespace, library: Any, ops: Mapping[str, Op]
) -> Iterator[tuple[object, ...]]:
    """Rows of one commit."""
    date, said = git(chosen.git, "log", "-1", "--format=%as%x09%s", commit).split("\t", 1)
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    prints = []
    for revision in (f"{commit}^", commit):
        write_project(revision, folder, chosen.git, library, ops)
        git(folder, "add", "--all", "--force")
        git(folder, *AUTHOR, "commit", "--quiet", "--allow-empty", "-m", said)
        prints.append(print_files(folder, ops))
    changed = [op for op in ops if op in prints[0] and op in prints[1] and not prints[0][op].same_as(prints[1][op])]
    touched = set(git(folder, "diff", "--name-only", "HEAD^").split())
    changed.sort(key=lambda op: (ops[op]["path"] not in touched, op))
    for op in changed[: chosen.ops]:
        begin = time.monotonic()
        verdicts, says = check(op, folder, chosen)
        yield commit[:10], date, op, verdicts, says, said[:80], round(time.monotonic() - begin)


def write_project(revision: str, folder: Path, where: Path, library: Any, ops: Mapping[str, Op]) -> None:
    """The library's source at a revision, and an op folder for each op that it has."""
    git(folder, "rm", "-rqf", "--ignore-unmatch", ".")
    packed = subprocess.run(["git", "-C", where, "archive", revision, library.PACKAGE], check=True, capture_output=True)
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    (folder / "pyproject.toml").write_text("[tool.perfci]\n")
    (folder / ".gitignore").write_text("reports/\n__pycache__/\n")
    (folder / "kernels").mkdir()
    (folder / "kernels" / "_replayed.py").write_text(library.SHARED)
    for name, path in getattr(library, "FILES", {}).items():
        (folder / "kernels" / name).write_bytes((HERE / path).read_bytes())
    for name, op in ops.items():
        if (folder / op["path"]).exists():
            write_op(folder / "kernels" / name, name, op)


def write_op(folder: Path, name: str, op: Op) -> None:
    """The four files of an op."""
    folder.mkdir()
    parameters = op["parameters"] + (f", {op['also']}" if "also" in op else "")
    imports = f"import inspect\n\nimport torch\n\nfrom _replayed import *\n{{}}\n\n\ndef {name}({parameters}):\n"
    (folder / f"{name}_triton.py").write_text(
        imports.format(op["kernel"] + op.get("helpers", "")) + f"    return {op['call']}\n"
    )
    (folder / f"{name}_baseline.py").write_text(
        imports.format(op.get("reference", ""))
        + f"    return {op['answer']}\n\n\ndef make_inputs(rows, cols, dtype, device, seed):\n"
        + f"    draw = normal(device, seed, dtype)\n    return {op['inputs']}\n"
    )
    start = textwrap.dedent(f"""
        import perfci
        import torch
        from {name}_baseline import {name} as reference, make_inputs

    """)
    options = "".join(
        f"    {key}={op[key] if isinstance(op[key], str) else repr(op[key])},\n"
        for key in ("values", "layouts", "tolerance", "mutates", "reduces", "deterministic", "uses_dot", "domain")
        if key in op
    )
    if "tolerance" in op:
        options += "    tolerance_reason='gradients are sums over rows, and sums of rounded terms',\n"
    common = "    kernel=reference,\n    reference=reference,\n    make_inputs=make_inputs,\n"
    (folder / f"{name}_accuracy.py").write_text(
        f"{start}accuracy = perfci.Accuracy(\n{common}    cases={op['cases']},\n{options})\n"
    )
    rows, cols, dtype = op.get("rows", 1024), op.get("cols", 4096), op.get("dtype", "torch.float32")
    (folder / f"{name}_performance.py").write_text(
        f"{start}performance = perfci.Performance(\n{common}"
        f"    cases=perfci.grid(rows=[{rows}], cols=[{cols}], dtype=[{dtype}]),\n)\n"
    )


def print_files(folder: Path, ops: Mapping[str, Op]) -> dict[str, Any]:
    """What each op's files are, as perfci follows what they import."""
    from perfci.ops.fingerprint.tree import Tree

    tree = Tree(folder, folder / "kernels")
    return {name: tree.fingerprint(name) for name in ops if (folder / "kernels" / name).exists()}


def check(op: str, folder: Path, chosen: argparse.Namespace) -> tuple[str, str]:
    """Verdicts of an op, such as "PASS, UNCHANGED", and what is said of those that are neither."""
    command = [chosen.python, "-P", "-m", "perfci", "check", op, "--against", "HEAD^"]
    command += ["--format", "json", "--seed", "1", "--lang", "en"]
    alone = {**os.environ, "GIT_CEILING_DIRECTORIES": ""}
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, env=alone, timeout=chosen.limit
        )
    except subprocess.TimeoutExpired:
        return "too long", ""
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return "broken", done.stderr.strip()[-300:]
    rows = answer["verdicts"]
    said = [
        f"{row['case'] or row['suite'] or ''}: {reason['sentence']}"
        for row in rows
        for reason in (row["reason"], *row["also"])
        if row["verdict"] not in {"PASS", "UNCHANGED"}
    ]
    if not said:
        said = [row["reason"]["sentence"] for row in rows if row["reason"] and row["target"]]
    verdicts = Counter(row["verdict"] for row in rows)
    return ", ".join(sorted(verdicts)), " / ".join(dict.fromkeys(said))[:600]


if __name__ == "__main__":
    main()
