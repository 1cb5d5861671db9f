"""What accuracy exercises of what performance times, of small ops that differ in one thing each."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

pytest.importorskip("triton")

from perfci.core.model import Reason, Suite  # noqa: E402
from perfci.extensions.static.commands.static import tell  # noqa: E402
from perfci.extensions.static.tasks import Covered, Exercised, conclude  # noqa: E402

TRITON = TEXTS["triton"]

BASELINE = TEXTS["baseline"]

SUITE = TEXTS["suite"]

OPS = {  # op -> block, whether one program loops, sizes of accuracy, of performance
    "one_tile": ("64", False, [64], [4096]),
    "other_block": ("64 if n <= 64 else 128", False, [64], [100]),
    "one_turn": ("64", True, [50], [1000]),
    "clean": ("64", False, [130], [4096]),
}


ELSEWHERE = TEXTS["elsewhere"]


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The op's name -> what `perfci static --coverage` found, and its exit code."""
    root = tmp_path_factory.mktemp("covered")
    (root / "pyproject.toml").write_text("[tool.perfci]\n")
    for op, (block, loops, accuracy, performance) in OPS.items():
        folder = root / "kernels" / op
        folder.mkdir(parents=True)
        (folder / f"{op}_triton.py").write_text(TRITON.format(op=op, block=block, loops=loops))
        (folder / f"{op}_baseline.py").write_text(BASELINE.format(op=op))
        for kind, sizes in (("Accuracy", accuracy), ("Performance", performance)):
            cases = f"perfci.grid(size={sizes}, dtype=[torch.float32])"
            text = SUITE.format(op=op, name=kind.lower(), kind=kind, cases=cases)
            (folder / f"{op}_{kind.lower()}.py").write_text(text)
    shutil.copytree(root / "kernels" / "clean", root / "kernels" / "elsewhere")
    for file in (root / "kernels" / "elsewhere").iterdir():
        file.rename(file.with_name(file.name.replace("clean", "elsewhere")))
    for file in (root / "kernels" / "elsewhere").iterdir():
        file.write_text(file.read_text().replace("clean", "elsewhere"))
    (root / "kernels" / "elsewhere" / "elsewhere_triton.py").write_text(ELSEWHERE)
    suite = root / "kernels" / "elsewhere" / "elsewhere_accuracy.py"
    large = "large_cases=perfci.grid(size=[2**31 + 70], dtype=[torch.float32]), "
    suite.write_text(suite.read_text().replace("cases=", f"{large}cases=", 1))

    def run(*ops: str):
        command = [sys.executable, "-m", "perfci", "static", "--coverage", "--format", "json", *ops]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert done.returncode in {0, 2}, done.stdout + done.stderr
        return done.returncode, {load["op"]: load for load in json.loads(done.stdout)}

    return run


@pytest.fixture(scope="module")
def all_ops(found):
    return found()


def find_gap(all_ops, op):
    gaps = all_ops[1][op]["gaps"]
    assert len(gaps) == 1
    return gaps[0]


def size_to_add(gap):
    return int(re.search(r"size=\[(\d+)\]", gap["add"])[1])


@pytest.mark.nightly
def test_a_second_tile_that_only_performance_has_is_named_with_the_smallest_case_of_two_tiles(all_ops):
    gap = find_gap(all_ops, "one_tile")
    assert [(feature["what"], feature["place"]) for feature in gap["features"]] == [("program", "0")]
    assert 64 < size_to_add(gap) <= 128


def test_a_constant_that_only_performance_reaches_is_a_kernel_that_accuracy_never_compiles(all_ops):
    gap = find_gap(all_ops, "other_block")
    assert [feature["what"] for feature in gap["features"]] == ["compiled"]
    assert "BLOCK=128" in gap["features"][0]["constants"]
    assert size_to_add(gap) == 100  # half of it has the other block


def test_a_loop_that_only_performance_turns_twice_is_named_by_its_line(all_ops):
    gap = find_gap(all_ops, "one_turn")
    assert [(feature["what"], feature["place"]) for feature in gap["features"]] == [("turn", "_double:6")]
    assert 64 < size_to_add(gap) <= 128


def test_an_op_whose_accuracy_exercises_all_has_no_gap(all_ops):
    assert all_ops[1]["clean"]["gaps"] == []


def test_a_line_that_no_case_runs_is_named(all_ops):
    assert all_ops[1]["clean"]["unrun"] == ["clean_triton.py:13"]


def test_a_line_that_a_probe_runs_in_one_of_its_layouts_is_not_named(all_ops):
    assert "clean_triton.py:10" not in all_ops[1]["clean"]["unrun"]


def test_a_line_that_runs_without_an_accelerator_or_in_a_large_case_only_is_not_named(all_ops):
    assert (all_ops[1]["elsewhere"]["unrun"], all_ops[1]["elsewhere"]["unseen"]) == ([], [])


def test_gaps_fail_the_command(all_ops):
    assert all_ops[0] == 2


def test_a_timed_case_that_cannot_be_looked_through_is_named_with_the_reason():
    why = Reason("unseen_raised", {"case": "size=4", "error": "TypeError", "message": "no", "file": "a.py", "line": 3})
    said = [Exercised("op", "sm_90", suite, "size=4", unseen=why) for suite in (Suite.ACCURACY, Suite.PERFORMANCE)]
    timed, checked = (conclude(calls, Covered("op", "sm_90")) for calls in (said, said[:1]))

    assert [text.text for text in tell([timed])] == [
        "op: not all that performance launches could be looked through",
        why,
        "could not be looked through: size=4",
    ]
    assert next(text.text for text in tell([checked])) == "op: accuracy exercises what performance times on sm_90"
