"""What `perfci ranks` says on two boards: right, timed beside NCCL, unchanged, planted, broken. docs/ranks.md has it.

    python benchmarks/ranks.py --out /tmp/ranks                # every part, some seven minutes of two GPUs
    python benchmarks/ranks.py --out /tmp/ranks --part right   # one of them (may be repeated)

Each part prints as it goes, and writes what perfci said to `PART-NAME.json` there. The kernels are those of this
repository, in a copy in which what is planted is committed beside the original.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
OPS = ("allgather_matmul", "matmul_reducescatter")
PLANTED_OP = OPS[0]
CASE = "m=8192,n=8192,k=4096,dtype=bfloat16"
CYCLES_A_US = 1800
"""Of a spin that slows a launch down: an H200's clock under a matmul, about."""
BLOCK = "    if program < senders:\n"
RETURN = "    return out\n\n\n@triton.jit(do_not_specialize"
COPY_BEGINS, COPY_ENDS = "            for start in range(0, k, COLUMNS):\n", "            raise_flag("

SIZES = "(*perfci.grid(m=[2048, 4096, 8192], n=[4096, 8192], k=[2048, 4096], dtype=[torch.bfloat16]),\n"
SIZES += "        *perfci.grid(m=[4096], n=[4096], k=[1024, 8192, 16384], dtype=[torch.float16]))"
"""Cases that unchanged kernels are compared on: fifteen an op."""

Edit = Callable[[Path], None]


def replace(path: Path, before: str, after: str) -> None:
    """Change a file. The text has to be there once."""
    text = path.read_text()
    assert text.count(before) == 1, f"{path.name} has {text.count(before)} times: {before}"
    path.write_text(text.replace(before, after))


def slow_down(share: float, us: float, condition: str) -> Edit:
    """A spin behind the launch, on the ranks that the condition is for."""
    spin = f"    if {condition}:\n        torch.cuda._sleep({round(share * us * CYCLES_A_US)})\n"
    return lambda path: replace(path, RETURN, spin + RETURN)


def lose_overlap(path: Path) -> None:
    """Every tile waits for all rows of the next rank, those of this rank's rows too."""
    awaited = "awaited = (rank + 1) % RANKS * tiles_m"
    wait = f"    if program >= senders:\n        {awaited}\n        for block in range(tiles_m):\n"
    wait += "            await_flag(addresses_ptr, rank, awaited + block, calls + 1)\n"
    replace(path, BLOCK, wait + BLOCK)


def send_twice(path: Path) -> None:
    """Rows are written to the peers two times."""
    text = path.read_text()
    copy = text[text.index(COPY_BEGINS) : text.index(COPY_ENDS)]
    replace(path, copy, "            for _ in range(2):\n" + textwrap.indent(copy, "    "))


def die(path: Path) -> None:
    """Rank 1 dies of a signal in the middle of a check."""
    replace(
        path, RETURN, "    if rank == 1 and m > 50:\n        import os\n        os.kill(os.getpid(), 11)\n" + RETURN
    )


def hang(path: Path) -> None:
    """Rank 1 sleeps before it launches."""
    begin = "    with _launch.on(a.device):\n"
    replace(path, begin, "    if rank == 1 and m > 50:\n        import time\n        time.sleep(10000)\n" + begin)


def keep_silent(path: Path) -> None:
    """Rank 1 sends its rows, and never raises a flag."""
    raised = "            raise_flag(addresses_ptr, peer, rank * tiles_m + block, call)"
    replace(path, raised, "            if rank != 1:\n    " + raised)


def remark(path: Path) -> None:
    """A comment, which changes nothing that is launched."""
    replace(path, RETURN, "    # The rows of all ranks.\n" + RETURN)


BROKEN: Mapping[str, Edit] = {"dies": die, "hangs": hang, "never sends": keep_silent}


def compare_many(path: Path) -> None:
    """More sizes in both performance files."""
    for op in OPS:
        file = path.parents[1] / op / f"{op}_performance.py"
        text = file.read_text()
        start, end = text.index("    cases=("), text.index("    bytes_moved=")
        file.write_text(f"{text[:start]}    cases={SIZES},\n{text[end:]}")


@contextmanager
def project(base: Edit | None = None, head: Edit | None = None, limit_s: int = 120, locks: str = "") -> Iterator[Path]:
    """A copy of both ops, committed as `main`, and behind it on a branch with what is planted.

    locks: folder of the boards' locks, if not that of all projects.
    """
    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        root = Path(name)
        for path in (*ROOT.glob("kernels/_*.py"), ROOT / "kernels/_devices", *(ROOT / "kernels" / op for op in OPS)):
            place = root / path.relative_to(ROOT)
            place.parent.mkdir(parents=True, exist_ok=True)
            copy: Callable[..., Any] = shutil.copytree if path.is_dir() else shutil.copy
            copy(path, place)
        lock_folder = f'lock_folder = "{locks}"\n' if locks else ""
        (root / "pyproject.toml").write_text(f"[tool.perfci]\ntime_limit_s = {limit_s}\n{lock_folder}")
        (root / ".gitignore").write_text("reports/\nlocks/\n__pycache__/\n")
        kernel = root / "kernels" / PLANTED_OP / f"{PLANTED_OP}_triton.py"
        if base:
            base(kernel)
        git(root, "init", "-q", "-b", "main")
        commit(root)
        git(root, "checkout", "-q", "-b", "change")
        if head:
            head(kernel)
            commit(root)
        yield root


def git(root: Path, *arguments: str) -> None:
    """Run git."""
    subprocess.run(["git", *arguments], cwd=root, check=True)


def commit(root: Path) -> None:
    """Commit everything."""
    git(root, "add", "-A")
    git(root, "-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "-q", "-m", "kernels")


def run(root: Path, out: Path, name: str, *arguments: str) -> Mapping[str, Any]:
    """Run perfci in a project. Returns what it said, which is kept."""
    began = time.monotonic()
    command = [sys.executable, "-m", "perfci", "ranks", *arguments, "--format", "json", "--project", str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    took_s = round(time.monotonic() - began, 1)
    print(f"{name}: exit {done.returncode} in {took_s} s", flush=True)
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        print(done.stdout[-3000:], done.stderr[-3000:], flush=True)
        said = {"ops": []}
    for log in sorted(root.glob("reports/ranks/logs/*.log")):
        text = log.read_text(errors="replace")
        if done.returncode and text.strip():
            print(f"--- {log.name}\n{text[-1500:]}", flush=True)
    said |= {"exit": done.returncode, "seconds": took_s}
    (out / f"{name.replace(' ', '-')}.json").write_text(json.dumps(said, indent=1))
    return said


def show(heads: str, rows: Iterable[Sequence[str]]) -> None:
    """Print a table."""
    lines = [heads.split(), *rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(lines[0]))]
    for line in lines:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)), flush=True)


def list_cases(said: Mapping[str, Any], kind: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Cases of all ops: checked or timed."""
    for op in said["ops"]:
        if op.get("failure") or op.get("skipped"):
            print(op["op"], json.dumps(op.get("failure") or op.get("skipped")), flush=True)
        yield from ((op["op"], case) for case in op[kind])


# --- the parts --------------------------------------------------------------------------------------------------------


def check_right(out: Path) -> None:
    """Both ops on two boards: right."""
    with project() as root:
        said = run(root, out, "right", *OPS, "--size", "2", "--accuracy", "--against", "main")
    rows = [
        (op, case["case"], case["verdict"], f"{case['whole'] or 0:.1e}") for op, case in list_cases(said, "checked")
    ]
    show("op case verdict l2", rows)


def time_beside(out: Path) -> None:
    """Both ops, beside NCCL with a product, communication and computation alone."""
    with project() as root:
        said = run(root, out, "time", *OPS, "--size", "2", "--duel", "none")
    rows = []
    for op, case in list_cases(said, "timed"):
        times = case["times_us"] or {}
        figures = [f"{times.get(arm, 0):.1f}" for arm in ("kernel", "reference", "communicate", "compute")]
        beside = [f"{case[name] or 0:.3f}" for name in ("speedup", "hidden", "skew_us")]
        counted = [f"{(case[name] or 0) / 1e6:.1f}" for name in ("sent_bytes", "counted_bytes")]
        rows.append((op, case["case"], case["verdict"], *figures, *beside, *counted))
    heads = "op case verdict kernel_us nccl_us communicate_us compute_us speedup hidden skew_us sent_MB counted_MB"
    show(heads, rows)
    for op in said["ops"]:
        print(op["op"], json.dumps({name: op[name] for name in ("clocks", "links", "boards")}), flush=True)


def compare_unchanged(out: Path) -> None:
    """Sixty duels of kernels with themselves."""
    verdicts: dict[str, int] = {}
    for number in (1, 2):
        with project(base=compare_many) as root:
            said = run(root, out, f"unchanged {number}", *OPS, "--size", "2", "--duel", "all", "--against", "main")
        for op, case in list_cases(said, "timed"):
            verdicts[case["verdict"]] = verdicts.get(case["verdict"], 0) + 1
            look = next((one["look"] for one in case["series"] if one["rank"] == -1), None)
            shift = look["shift"]["value"] if look else 0
            print(op, case["case"], case["verdict"], f"{shift:+.4f}", look and look["blocks"], flush=True)
    print("unchanged:", json.dumps(verdicts), flush=True)
    (out / "unchanged.json").write_text(json.dumps(verdicts))


def plant(out: Path, only: Sequence[str] = ()) -> None:
    """Each planted slow-down, against the original. only: some of them."""
    timed = out / "time.json"
    ops = json.loads(timed.read_text())["ops"] if timed.exists() else []
    us = next((case["times_us"]["kernel"] for op in ops for case in op["timed"] if case["case"] == CASE), 500.0)
    edits: dict[str, Edit] = {
        "planted comment": remark,
        "planted one rank": slow_down(0.03, us, "rank == 1"),
        "planted all ranks": slow_down(0.03, us, "rank >= 0"),
        "planted lost overlap": lose_overlap,
        "planted message twice": send_twice,
    }
    for name, edit in ((name, edit) for name, edit in edits.items() if not only or name in only):
        with project(head=edit) as root:
            said = run(root, out, name, PLANTED_OP, "--size", "2", "--case", CASE, "--against", "main")
        for _, case in list_cases(said, "timed"):
            shifts = {one["rank"]: round(one["look"]["shift"]["value"], 4) for one in case["series"]}
            print(name, case["verdict"], json.dumps(shifts), flush=True)
            print(*(reason["sentence"] for reason in case["reasons"]), sep="\n", flush=True)


def break_ranks(out: Path) -> None:
    """A rank that dies, one that hangs, and one that never sends: at once, as nothing is timed."""

    def break_one(name: str) -> Mapping[str, Any]:
        with project(head=BROKEN[name], limit_s=20, locks="locks") as root:
            chosen = ("--size", "2", "--accuracy", "--case", "m=148*float32")
            return run(root, out, f"broken {name}", PLANTED_OP, *chosen)

    with ThreadPoolExecutor(len(BROKEN)) as pool:
        for name, said in zip(BROKEN, pool.map(break_one, BROKEN), strict=True):
            reasons = [reason for _, case in list_cases(said, "checked") for reason in case["reasons"]]
            print(f"broken {name}:", *(reason["sentence"] for reason in reasons), flush=True)
    if shutil.which("nvidia-smi"):
        ask = ["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"]
        left = subprocess.run(ask, capture_output=True, text=True, check=False)
        print("processes left on the boards:", left.stdout.split() or "none", flush=True)


PARTS = {
    "right": check_right,
    "time": time_beside,
    "unchanged": compare_unchanged,
    "planted": plant,
    "broken": break_ranks,
}


def main() -> None:
    """Run the parts that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for what perfci said")
    parser.add_argument("--part", choices=[*PARTS], action="append", help="only this part (may be repeated)")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    for name in asked.part or PARTS:
        print(f"=== {name}", flush=True)
        began = time.monotonic()
        PARTS[name](asked.out)
        print(f"=== {name}: {time.monotonic() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
