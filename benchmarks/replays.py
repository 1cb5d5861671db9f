"""Replays changes of kernels in this repository's history as merge requests, on Triton's interpreter.

    python benchmarks/replays.py [--commits 60] [--ops 3] [--cases 3]

Each commit that touches kernels/ is compared with its parent, op by op, each in a separate process: both revisions'
suites as data, both references, and the new kernel in the parent's suite on its smallest cases. Every verdict that such
a change would get for its suites is printed with its reasons, to be read: honest changes should get none that a
reviewer would not agree with. The perfci of this folder judges; the commits bring kernels alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
LIMIT_S = 240.0  # of one op of one commit


def git(*arguments: str) -> str:
    return subprocess.run(["git", "-C", HERE, *arguments], check=True, capture_output=True, text=True).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commits", type=int, default=60)
    parser.add_argument(
        "--ops", type=int, default=3, help="at most so many ops of a commit, those with a change in their folder first"
    )
    parser.add_argument("--cases", type=int, default=3, help="smallest cases in which the kernel is run")
    parser.add_argument("--one", nargs=4, metavar=("OP", "BEFORE", "AFTER", "CASES"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        op, before, after, cases = options.one
        print(json.dumps(compare(op, Path(before), Path(after), int(cases))))
        return
    counts: Counter[str] = Counter()
    replayed = set()
    with tempfile.TemporaryDirectory() as folder:
        for commit in git("log", "--no-merges", "--format=%H", "--", "kernels").split()[: options.commits]:
            trees = [
                write_tree(f"{commit}{parent}", Path(folder) / f"{commit[:10]}{number}")
                for number, parent in enumerate(("^", ""))
            ]
            if None in trees:
                continue
            for op in choose_ops(*trees)[: options.ops]:  # type: ignore[arg-type]
                command = [sys.executable, __file__, "--one", op, *map(str, trees), str(options.cases)]
                try:
                    done = subprocess.run(
                        command,
                        check=False,
                        capture_output=True,
                        text=True,
                        timeout=LIMIT_S,
                        env={**os.environ, "TRITON_INTERPRET": "1"},
                    )
                    answer = (
                        json.loads(done.stdout.strip().splitlines()[-1])
                        if done.returncode == 0
                        else {"verdict": "broken", "reasons": [done.stderr.strip().splitlines()[-1][:200]]}
                    )
                except subprocess.TimeoutExpired:
                    answer = {"verdict": "too long", "reasons": []}
                counts[answer["verdict"]] += 1
                replayed.add(commit)
                print(
                    commit[:10],
                    op,
                    answer["verdict"],
                    answer.get("kind", ""),
                    *answer["reasons"],
                    sep=" | ",
                    flush=True,
                )
    print(
        f"{len(replayed)} commits, {counts.total()} changed ops:",
        ", ".join(f"{count} {name}" for name, count in counts.most_common()),
    )


def write_tree(revision: str, folder: Path) -> Path | None:
    """The kernels of a revision. None if it has none."""
    packed = subprocess.run(["git", "-C", HERE, "archive", revision, "kernels"], check=False, capture_output=True)
    if packed.returncode:
        return None
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, check=True)
    return folder


def choose_ops(before: Path, after: Path) -> list[str]:
    """Ops of both revisions with files that differ, those that differ in their folders first."""
    from perfci.ops.fingerprint.tree import Tree

    names = [{path.parent.name for path in (tree / "kernels").glob("*/*_triton.py")} for tree in (before, after)]
    trees = [Tree(tree, tree / "kernels") for tree in (before, after)]
    changed = {}
    for op in sorted(names[0] & names[1]):
        prints = [tree.fingerprint(op) for tree in trees]
        if not prints[0].same_as(prints[1]):
            changed[op] = any(f"/{op}/" in path for path in prints[1].changed_files(prints[0]))
    return sorted(changed, key=lambda op: (not changed[op], op))


def compare(op: str, before: Path, after: Path, cases: int) -> dict[str, object]:
    """What a merge request with this change would be told about its suites."""
    import perfci
    from perfci.core.errors import ContractError
    from perfci.core.model import Base, Device, Environment, OpRun, Plan, PlannedBase, PlannedOp, Run, SuiteChange
    from perfci.core.wording import sentence
    from perfci.device import open_device
    from perfci.judge.change import find_kind, judge_change
    from perfci.measure.suites import describe_suite, find_other_answers, find_weaker
    from perfci.measure.verify import checks, verify
    from perfci.ops.fingerprint.tree import Tree
    from perfci.ops.spec import Accuracy, case_id
    from perfci.runs.beside import can_be_called_alike
    from perfci.worker.apart import load_apart
    from perfci.worker.load import import_roots, list_signature, load_op

    # Fields that perfci no longer has are left out.
    fields = {field.name for field in dataclasses.fields(Accuracy)}
    perfci.Accuracy = lambda **given: Accuracy(**{key: given[key] for key in given if key in fields})  # type: ignore[misc,assignment]
    device = open_device("cpu", seed=1, timer="auto", fake={})
    folders = [tree / "kernels" / op for tree in (after, before)]
    try:
        head = load_op(op, folders[0], after / "kernels")
    except ContractError as error:
        return {"verdict": "not loaded", "reasons": [sentence(error.reason)[:200]]}
    sys.path[:0] = import_roots(folders[0], after / "kernels")
    try:
        base = load_apart(op, folders[1], before / "kernels", before, after)
    except ContractError as error:
        return {"verdict": "base not loaded", "reasons": [sentence(error.reason)[:200]]}

    def few(suite):  # type: ignore[no-untyped-def]
        size = lambda params: math.prod(value for value in params.values() if isinstance(value, int))  # noqa: E731
        small = sorted(suite.cases, key=size)[:cases]
        return dataclasses.replace(suite, cases=small, probe_cases=small[-1:], values=("zeros", "nan"), layouts=())

    judged = head.judged_by(base)
    signatures = [tuple(list_signature(side.performance.kernel)) for side in (base, head)]
    weaker = tuple(find_weaker((base.accuracy, base.performance), (head.accuracy, head.performance), device))
    results, other = [], None
    if can_be_called_alike(*signatures):
        if describe_suite(base.accuracy)["reference"] != describe_suite(head.accuracy)["reference"]:
            other = find_other_answers(
                few(base.accuracy), dataclasses.replace(few(head.accuracy), cases=head.accuracy.cases), device.arrays
            )
        for suite, of_base in ((judged.accuracy, True), (head.accuracy, False)):
            for check in checks(few(suite), 7, None):
                found = verify(
                    suite, device, check, lambda error: {"error": type(error).__name__, "message": str(error)[:200]}
                )
                results.append(dataclasses.replace(found, of_base=of_base))
    prints = [Tree(tree, tree / "kernels").fingerprint(op) for tree in (after, before)]
    planned = PlannedOp(
        op,
        signature=signatures[1],
        base=PlannedBase(changed=prints[0].changed_files(prints[1]), signature=signatures[0]),
    )
    run_op = OpRun(op, accuracy=tuple(results), change=SuiteChange(weaker, (other,) if other else ()))
    plan = Plan((planned,), 7, 1.0, "cpu", base=Base("0" * 40, "merge_base", "main"))
    run = Run(
        "replay",
        "2026-01-01T00:00:00Z",
        "0",
        "",
        Environment(Device("cpu", "CPU", "cpu"), None, "3", {}, "host", "Linux"),
        plan,
        (run_op,),
    )
    row, kind = judge_change(run, planned, run_op), find_kind(planned, run_op)
    wrong = [result for result in results if result.failure]
    reasons = [sentence(reason)[:300] for reason in (row.reasons if row else ())]
    reasons += [
        f"{'base' if one.of_base else 'own'} {case_id({})}{one.case} {one.values}: {sentence(one.failure)[:200]}"
        for one in wrong[:2]
        if one.failure
    ]
    verdict = str(row.verdict) if row else "WRONG" if wrong else "PASS"
    return {"verdict": verdict, "kind": kind.name if kind else "", "reasons": reasons}


if __name__ == "__main__":
    main()
