"""perfci beside four other tools on the same op: seconds from the shell to the answer, and what the answer tells.

    python benchmarks/beside.py --out beside.json                                       # on a GPU
    python benchmarks/beside.py --out beside.json --only nvbench                        # one tool, into the same file
    python benchmarks/beside.py --read beside.json --page docs/how-good-is-perfci.md    # no device

The op is this repository's broadcast, with all its performance cases and its baseline as the reference.
`peer_scripts/latencies.py` says what each tool does; nvbench needs the package cuda-bench in the interpreter that runs
this. Everything is a process of its own. Each tool runs twice, first with an empty cache of Triton's. So does
`perfci check`. Then one case is made slower: it writes one row in 36 twice. Each tool times this case three times for
the kernel and the slower one, in turns, each time in a new process; `perfci check` compares the two commits.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from answer_time import answer, write_project
from peers import SCRIPTS, Verdict, compare_documents
from speed import git, machine
from tables import Marks, table

MARKS = Marks("benchmarks/beside.py")
OP = "broadcast"
CASES = (
    (1024, 1024, "float32"),
    (4096, 1024, "float32"),
    (4096, 1024, "float16"),
    (8192, 4096, "float16"),
    (32768, 4096, "bfloat16"),
    (32768, 4096, "float32"),
    (262144, 768, "float16"),
    (262144, 512, "float16"),
    (1048576, 1024, "float16"),
    (4194304, 256, "float16"),
)
"""Those of kernels/broadcast/broadcast_performance.py: rows, columns, dtype"""
SLOWER = CASES[4]
TURNS = 3
TOOLS = {
    "do_bench": "`triton.testing.do_bench`",
    "nvbench": "nvbench (cuda-bench)",
    "tritonbench": "tritonbench's latency",
    "kernelbench": "KernelBench's `eval`",
}
TELLS = {
    "do_bench": "no",
    "nvbench": "`nvbench-compare-robust`",
    "tritonbench": "no",
    "kernelbench": "no, with the reference",
}
"""Whether a tool compares with an earlier revision"""
Figures = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, metavar="FILE", help="measure, and keep the figures here")
    parser.add_argument("--only", nargs="+", choices=["perfci", *TOOLS], metavar="TOOL", help="perfci or a tool's name")
    parser.add_argument("--read", type=Path, metavar="FILE", help="figures that were kept")
    parser.add_argument("--page", type=Path, help="write the tables there, between its marks")
    asked = parser.parse_args()
    if (asked.out is None) == (asked.read is None):
        parser.error("give --out or --read")
    if asked.out:
        measure(asked.out, asked.only or ["perfci", *TOOLS])
    text = tables_text(json.loads((asked.out or asked.read).read_text(encoding="utf-8")))
    if asked.page:
        MARKS.written(asked.page, text)
    print(text)


# --- measuring --------------------------------------------------------------------------------------------------------


def measure(out: Path, tools: Sequence[str]) -> None:
    """Keeps the figures after every tool. Those of others stay in the file, if they are of the same board."""
    with tempfile.TemporaryDirectory(prefix="perfci-beside-") as name:
        folder = Path(name)
        project = write_project(folder / "project")
        shutil.copytree(project / "kernels", folder / "slower" / "kernels")
        plant(folder / "slower", SLOWER)
        others = [tool for tool in tools if tool != "perfci"]
        turns, _ = ask(folder, others, [SLOWER], ["project", "slower"], TURNS)
        alternated = turns.pop("alternated")
        if "failed" in alternated:
            raise SystemExit(f"no GPU: {alternated['failed']}")
        figures: Figures = {"board": alternated["board"], "machine": machine(), "tools": {}}
        if out.exists():
            figures = json.loads(out.read_text(encoding="utf-8"))
            if figures["board"] != alternated["board"]:
                raise SystemExit(f"{out} is of another board: {figures['board']}")
        base, slower = alternated["rows"][0]["us"]
        figures["planted"] = slower / base - 1
        for tool in tools:
            began = time.perf_counter()
            if tool == "perfci":
                figures["perfci"] = time_perfci(project, folder)
            else:
                figures["tools"][tool] = time_tool(folder, tool, turns[tool])
            out.write_text(json.dumps(figures, indent=1), encoding="utf-8")
            print(f"{tool}: {time.perf_counter() - began:.0f} s in all", file=sys.stderr, flush=True)


def plant(folder: Path, case: tuple[int, int, str]) -> None:
    """Lets a copy's kernel write one row in 36 twice in one case. Half of the output lies between: L2 keeps none."""
    path = folder / "kernels" / OP / f"{OP}_triton.py"
    text = path.read_text(encoding="utf-8")
    rows, cols, dtype = case
    last = "        _write(out_ptr, tile, start, rows, cols, col, ROWS)\n"
    changes = {
        "LOOP: tl.constexpr\n": "LOOP: tl.constexpr, AGAIN: tl.constexpr\n",
        "num_warps=tile.warps,\n": "num_warps=tile.warps,\n            "
        f"AGAIN=rows // 36 if (rows, cols, out.dtype) == ({rows}, {cols}, torch.{dtype}) else 0,\n",
        last: f"{last}        if AGAIN:\n            if start < AGAIN:\n"
        "                _write(out_ptr, tile, start + rows // 2, rows, cols, col, ROWS)\n",
    }
    for before, after in changes.items():
        if text.count(before) != 1:
            raise SystemExit(f"{path.name} has {before.strip()!r} {text.count(before)} times")
        text = text.replace(before, after)
    path.write_text(text, encoding="utf-8")


def time_tool(folder: Path, tool: str, turns: Sequence[Sequence[Any]]) -> Figures:
    """Two answers of a tool. turns: its answers on the case that is made slower, before and after."""
    failed = [answer["failed"] for turn in turns for answer in turn if "failed" in answer]
    if failed:
        return {"failed": failed[0]}
    try:
        answers = [ask(folder, [tool], CASES, ["project"]) for _ in range(2)]
    except subprocess.CalledProcessError as error:
        return {"failed": (error.stderr.strip().splitlines() or ["without a word"])[-1]}
    figures: Figures = {"seconds": [seconds for _, seconds in answers]}
    if tool == "nvbench":
        documents = [[rows[0].pop("json") for rows in turn] for turn in turns]
        figures["against_slower"] = [verdict for base, slower in documents for verdict in compare(base, slower)]
        figures["against_itself"] = compare(*(rows[0].pop("json") for rows, _ in answers))
    figures["answers"] = [rows for rows, _ in answers]
    figures["turns"] = [[rows[0]["us"][0] for rows in arm] for arm in zip(*turns, strict=True)]
    return figures


def compare(reference: str, compared: str) -> list[Verdict]:
    """The verdict of nvbench's comparison on the kernel, in every case of two of its documents."""
    program = (sys.executable, "-m", "cuda.bench.scripts.nvbench_compare_robust")
    return [verdict for key, verdict in compare_documents(program, reference, compared).items() if "Arm=0" in key]


def ask(
    folder: Path, tools: Sequence[str], cases: Sequence[tuple[int, int, str]], projects: Sequence[str], turns: int = 0
) -> tuple[Any, float]:
    """The answer of `peer_scripts/latencies.py`, and its seconds from the shell."""
    question = {
        "ways": tools,
        "op": OP,
        "folders": [str(folder / name) for name in projects],
        "cases": [{"rows": rows, "cols": cols, "dtype": dtype} for rows, cols, dtype in cases],
        "turns": turns,
    }
    variables = {**os.environ, "TRITON_CACHE_DIR": str(folder / f"triton-{'turns' if turns else tools[0]}")}
    command = [sys.executable, SCRIPTS / "latencies.py"]
    began = time.perf_counter()
    done = subprocess.run(
        command, input=json.dumps(question), capture_output=True, text=True, check=False, env=variables
    )
    seconds = time.perf_counter() - began
    if done.returncode or turns:
        print(done.stderr[-4000:], file=sys.stderr)
    done.check_returncode()
    return json.loads(done.stdout), seconds


def time_perfci(project: Path, folder: Path) -> Figures:
    """Two checks of the op, and one of a merge request in which the case is slower."""
    variables = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    answers = [answer(project, [OP], variables) for _ in range(2)]
    kernel = Path("kernels") / OP / f"{OP}_triton.py"
    git(project, "checkout", "-q", "-b", "topic")
    shutil.copy(folder / "slower" / kernel, project / kernel)
    git(project, "commit", "-q", "-a", "-m", "One row in 36 twice")
    slower = answer(project, [OP, "--against", "main"], variables)
    return {
        "seconds": [seconds for seconds, *_ in answers],
        "answers": [rows_of(rows) for _, rows, _ in answers],
        "slower_seconds": slower[0],
        "slower": rows_of(slower[1]),
    }


def rows_of(rows: Sequence[Mapping[str, Any]]) -> list[Figures]:
    kept = ("suite", "case", "verdict", "change")
    return [{**{name: row[name] for name in kept}, "sentence": (row["reason"] or {}).get("sentence")} for row in rows]


# --- tables -----------------------------------------------------------------------------------------------------------


def tables_text(figures: Figures) -> str:
    """How long each takes, and what it tells of the kernel, of the same kernel twice, and of the slower one."""
    board = figures["board"].split(", ")
    tools = {name: figures["tools"][name] for name in TOOLS if name in figures["tools"]}
    ran = {name: tool for name, tool in tools.items() if "failed" not in tool}
    failed = {name: tool["failed"] for name, tool in tools.items() if "failed" in tool}
    return "\n\n".join(
        [
            f"On {', '.join([board[0], *board[2:]])} ({figures['machine']}).",
            times_text(figures, ran),
            f"One case writes one row in 36 twice: {signed(figures['planted'])} by 1,000 launches of both in turns.",
            tells_text(figures, ran),
            *(f"{TOOLS[name]} did not run: {why}" for name, why in failed.items()),
        ]
    )


def times_text(figures: Figures, tools: Mapping[str, Figures]) -> str:
    """Seconds from the shell to the answer, and perfci's by theirs."""
    ours = figures["perfci"]["seconds"]
    rows = [("`perfci check broadcast`", *map(seconds_text, ours), "")]
    for name, tool in tools.items():
        times = tool["seconds"]
        ratios = [f"{mine / other:.1f}" for mine, other in zip(ours, times, strict=True)]
        rows.append((TOOLS[name], *map(seconds_text, times), " and ".join(ratios)))
    slower = figures["perfci"]["slower_seconds"]
    rows.append(("`perfci check broadcast --against main`, one case slower", seconds_text(slower), "", ""))
    return table(("from the shell to the answer", "first", "again", "perfci's time divided by it"), rows)


def seconds_text(seconds: float) -> str:
    return f"{seconds:.1f} s"


def share(part: float) -> str:
    return f"{100 * part:.1f} %"


def signed(change: float) -> str:
    return f"{100 * change:+.1f} %"


def tells_text(figures: Figures, tools: Mapping[str, Figures]) -> str:
    """What the answers hold; a tool's own numbers say how far the same kernel is from itself."""
    head = ("", "right answers", "noise", "an earlier revision", "the same kernel in two runs", "the slower case")
    rows = [("perfci", *ours_text(figures["perfci"]))]
    rows += [(TOOLS[name], *tool_text(name, tool, figures["planted"])) for name, tool in tools.items()]
    return table(head, rows)


def ours_text(perfci: Figures) -> tuple[str, ...]:
    accuracy = next(row["sentence"] for row in perfci["answers"][0] if row["suite"] == "accuracy")
    verdicts = [count_text(timed(rows)) for rows in perfci["answers"]]
    row = next(row for row in timed(perfci["slower"]) if row["case"] == name_case(SLOWER))
    others = count_text([other for other in timed(perfci["slower"]) if other is not row])
    change = f" {signed(row['change']['value'])}" if row["change"] else ""
    return (
        accuracy.partition(" passed")[0],
        "part of each verdict",
        "yes, in turns on the device",
        "; ".join(verdicts),
        f"{row['verdict']}{change}; the others {others}",
    )


def timed(rows: Sequence[Figures]) -> list[Figures]:
    return [row for row in rows if row["suite"] == "performance" and row["case"]]


def count_text(rows: Sequence[Figures]) -> str:
    return ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(row["verdict"] for row in rows).items()))


def name_case(case: tuple[int, int, str]) -> str:
    return "rows={},cols={},dtype={}".format(*case)


def tool_text(name: str, tool: Figures, planted: float) -> tuple[str, ...]:
    first, again = tool["answers"]
    inputs = sum(row["inputs"] for row in first)
    noise = [row["noise"][0] for row in again if "noise" in row]
    apart = [abs(rows[1]["us"][0] / rows[0]["us"][0] - 1) for rows in zip(first, again, strict=True)]
    past = sum(one >= planted for one in apart)
    same = f"up to {share(max(apart))} apart, {past} of {len(apart)} by {share(planted)} or more"
    slower = slower_text(*tool["turns"])
    if "against_slower" in tool:
        same += f"; {changed_text(tool['against_itself'])}"
        slower += f"; {changed_text(tool['against_slower'])}"
    return (
        f"{inputs} inputs" if inputs else "not looked at",
        f"standard deviation, {share(min(noise))} to {share(max(noise))}" if noise else "no",
        TELLS[name],
        same,
        slower,
    )


def changed_text(verdicts: Sequence[Verdict]) -> str:
    """What nvbench's comparison says, in its words."""
    return f"SLOW {verdicts.count('slower')}, FAST {verdicts.count('faster')} of {len(verdicts)}"


def slower_text(base: Sequence[float], slower: Sequence[float]) -> str:
    """A slow-down is to be seen if any two processes differ by more than two of the same kernel do."""
    apart = max(base) / min(base)
    seen = min(slower) / max(base) > apart
    change = sorted(slower)[len(slower) // 2] / sorted(base)[len(base) // 2] - 1
    word = "seen" if seen else "not seen"
    return f"{signed(change)} beside {share(apart - 1)} between {len(base)} processes of the kernel: {word}"


if __name__ == "__main__":
    main()
