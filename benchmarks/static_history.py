"""False alarms of the static gate: every commit to kernels/ compared with its parent by what both compile to.

python benchmarks/static_history.py                      # this repository, for sm_90 and sm_80
python benchmarks/static_history.py --commits 5          # only the newest five
python benchmarks/static_history.py --repository PATH --target gfx942

Each commit was reviewed and kept, so whatever the gate fails of it counts as a false alarm. A case counts if both
revisions compile and its code differs. Nothing needs a GPU. An hour on two cores for this repository.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from screen_on_traces import upper_bound

ROOT = Path(__file__).resolve().parents[1]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repository", type=Path, default=ROOT)
    parser.add_argument("--kernels", default="kernels", help="folder of the ops")
    parser.add_argument("--target", default="sm_90,sm_80")
    parser.add_argument("--commits", type=int, default=10_000)
    chosen = parser.parse_args()
    total, alarmed = Counter[str](), set[str]()
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "clone"
        _git(ROOT, "clone", "--quiet", str(chosen.repository.resolve()), str(clone))
        for commit, subject in list_commits(clone, chosen.kernels)[: chosen.commits]:
            _git(clone, "checkout", "--quiet", "--force", commit)
            compared, alarms = judge(clone, chosen.target)
            total += Counter(commits=1, cases=compared, alarms=len(alarms))
            if alarms:
                alarmed.add(commit)
            print(f"{commit[:10]} {compared:4} cases {len(alarms):3} alarms  {subject[:70]}", flush=True)
            for line in dict.fromkeys(alarms):
                print(f"             {line}", flush=True)
    cases, alarms = total["cases"], total["alarms"]
    print(
        f"{total['commits']} commits, {cases} cases with changed code, {alarms} alarms in {len(alarmed)} commits: "
        f"{alarms / max(cases, 1):.2%} of the cases, 95 % upper bound {upper_bound(alarms, max(cases, 1)):.2%}"
    )
    return 0


def list_commits(clone: Path, kernels: str) -> list[tuple[str, str]]:
    """Commits that change Python or tuned files of ops, and have a parent. The newest first."""
    paths = (f"{kernels}/*_triton.py", f"{kernels}/_*", f"{kernels}/*/tuned")
    lines = _git(clone, "log", "--no-merges", "--min-parents=1", "--format=%H %s", "--", *paths).splitlines()
    return [(line[:40], line[41:]) for line in lines]


def judge(clone: Path, target: str) -> tuple[int, list[str]]:
    """How many cases of a checkout have other code than its parent's, and a line for each alarm."""
    # -P: this perfci, where the checkout has one of its own.
    command = [sys.executable, "-P", "-m", "perfci", "static", "--changed", "--against", "HEAD^"]
    command += ["--target", target, "--format", "json", "--project", str(clone)]
    variables = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=variables, cwd=clone)
    if done.returncode == 1:
        print(f"             not judged: {done.stderr.strip()[-200:]}")
        return 0, []
    run = json.loads((clone / "reports" / "static" / "run.json").read_text(encoding="utf-8"))
    differing = sum(1 for _ in list_differing(run["static"]))
    alarms = []
    for row in json.loads(done.stdout)["verdicts"]:
        if row["verdict"] == "REGRESSED":
            alarms.append(f"{row['op']} {row['case']} ({row['target']}): {row['reason']['sentence']}")
    return differing, alarms


def list_differing(static: dict) -> Iterator[str]:
    """Cases that compile in both revisions, to other code."""
    before = {
        (op["op"], op["target"], case["case"]): case
        for op in static.get("base_ops", ())
        for case in op.get("cases", ())
    }
    for op in static.get("ops", ()):
        for case in op.get("cases", ()):
            old = before.get((op["op"], op["target"], case["case"]))
            if old and not old.get("failure") and not case.get("failure") and codes(old) != codes(case):
                yield case["case"]


def codes(case: dict) -> Sequence[str]:
    return [binary["artefact"] for binary in case.get("binaries", ())]


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    sys.exit(main())
