"""The base of a run: found in git, compared with each op's files, and the interpreter that it may run in."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import pytest

from perfci.core.errors import UsageError
from perfci.core.model.basics import Reason
from perfci.core.model.run import PlannedOp
from perfci.core.settings import load, take_grants
from perfci.core.wording import sentence
from perfci.runs import base as stage
from perfci.runs.bench import NEEDED, open_bench
from perfci.runs.beside import describe_against, plan_ops
from perfci.runs.plan import Request
from tests.git_repositories import clone, commit_all, git
from tests.runs.stand_ins import CASES


@pytest.fixture
def bench(forked):
    with open_bench(forked, print) as bench:
        yield bench


@pytest.fixture
def loose(settings):
    """A project that is no repository."""
    with open_bench(settings, print) as bench:
        yield bench


def find(bench, **request):
    base = stage.find(bench, Request(**request))
    return base.tree or base.against.note


def refused(bench, **request):
    with pytest.raises(UsageError) as caught:
        find(bench, **request)
    words = sentence(caught.value.reason)
    assert "{" not in words and "\n" not in words and words.endswith((".", "?"))
    return caught.value.reason


# --- which revision ---------------------------------------------------------------------------------------------------


def test_a_revision_that_was_named_and_does_not_exist_is_a_usage_error(bench):
    assert refused(bench, against="v9.9").kind == "revision_unknown"


def test_in_a_merge_request_it_is_said_why_there_is_no_base(loose, monkeypatch):
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")

    reason = find(loose)
    assert (reason.kind, reason.facts["cause"]) == ("merge_without_base", "no_repository")


# --- rules ------------------------------------------------------------------------------------------------------------


def test_a_change_that_moves_its_rules_is_judged_by_those_of_its_base(bench, forked):
    (forked.root / "pyproject.toml").write_text('[tool.perfci]\nthresholds = "ci/limits"\nkernels = "ops"\n')
    settings = load(forked.root)
    settings.thresholds.mkdir(parents=True)
    (settings.thresholds / "default.yaml").write_text("margin: 3 %\n")
    (forked.baselines / "fake-one").mkdir(parents=True)
    (forked.baselines / "fake-one" / "relu.json").write_text("{}")

    tree = find(dataclasses.replace(bench, settings=settings))

    assert tree.base.changed_rules == ("ci/limits/default.yaml", "baselines/fake-one/relu.json", "pyproject.toml")
    root = tree.settings.root
    assert (tree.settings.thresholds, tree.settings.kernels) == (root / "thresholds", root / "kernels")
    assert (tree.base.changed_baselines, tree.base.proposed_on) == (("baselines/fake-one/relu.json",), None)


# --- what the base has of each op -------------------------------------------------------------------------------------


def planned(bench, workers, **ops):
    """Head's ops as the base bears on them; `ops` are what the base's describing worker finds."""
    workers.planned = ops
    tree = find(bench)
    head = [PlannedOp(op, ("rows=0",), CASES, signature=("x",)) for op in ("added", "relu", "scale")]
    return {op.op: op.base for op in plan_ops(bench, tree, Request(device="fake"), head)}


def test_an_op_with_the_same_files_is_the_same_without_being_imported(bench, workers):
    plans = planned(bench, workers, relu=PlannedOp("relu", (), CASES[:1], signature=("x",)))

    assert (plans["scale"].same, plans["scale"].performance) == (True, CASES)
    assert (plans["relu"].same, plans["relu"].performance) == (False, CASES[:1])
    assert plans["relu"].changed == ("kernels/relu/relu_triton.py",)
    assert [[files.op for files in task.place.ops] for task in workers.tasks] == [["relu"]]


def test_head_is_described_while_the_base_is(bench, workers):
    against = describe_against(bench, Request(device="fake"), find(bench))

    assert {op.op: op.base.same for op in against.ops} == {"relu": False, "scale": True}
    assert [[files.op for files in task.place.ops] for task in workers.tasks] == [["relu", "scale"], ["relu"]]
    assert workers.most_at_once == 2


def test_a_renamed_case_is_one_that_the_base_has_too(bench, workers):
    workers.planned = {"relu": PlannedOp("relu", (), ("n=1", "rows=2"), signature=("x",))}
    head = [PlannedOp("relu", ("rows=0",), CASES, signature=("x",), renamed={"rows=1": "n=1"})]

    (op,) = plan_ops(bench, find(bench), Request(device="fake"), head)

    assert op.base.performance == CASES


def test_another_signature_cannot_be_called_alike(bench, workers):
    plans = planned(bench, workers, relu=PlannedOp("relu", (), CASES, signature=("x", "scale")))

    assert plans["relu"].failure.facts == {"op": "relu", "before": "x, scale", "after": "x"}
    assert plans["relu"].performance == CASES


def test_a_base_that_does_not_import_is_said_with_its_cause(bench, workers):
    why = Reason("import_failed", {"suite": "relu_accuracy.py", "error": "ImportError", "message": "no libdevice",
                                   "file": "relu_triton.py", "line": 3})  # fmt: skip
    plans = planned(bench, workers, relu=PlannedOp("relu", failure=why))

    assert plans["relu"].failure.kind == "base_broken"
    assert "no libdevice" in sentence(plans["relu"].failure)


def test_late_imports_need_a_process_for_each_revision(bench, workers, forked):
    folder = forked.kernels / "relu"
    (folder / "relu_helper.py").write_text("VALUE = 1\n")
    (folder / "relu_triton.py").write_text("def relu(x):\n    import relu_helper\n\n    return x\n")

    plans = planned(bench, workers, relu=PlannedOp("relu", (), CASES, signature=("x",)))

    assert plans["relu"].apart.kind == "imports_late"
    assert "relu_triton.py:2" in plans["relu"].apart.facts["where"]


# --- another interpreter ----------------------------------------------------------------------------------------------


@pytest.fixture
def interpreter(tmp_path):
    """Makes a program that answers as an interpreter would, or does not."""

    def make(script):
        path = tmp_path / "python"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return str(path)

    return make


def answering(**answer):
    facts = {"python": "3.12.1", "triton": "3.2.0"} | answer
    return f"echo '{json.dumps([facts, []])}'"


def test_versions_of_another_interpreter_are_recorded(bench, interpreter):
    tree = find(bench, base_python=interpreter(answering()), device="fake")

    assert tree.base.packages == {"python": "3.12.1", "triton": "3.2.0"}


def test_an_interpreter_is_found_by_its_name_and_from_wherever_perfci_was_called(bench, interpreter, monkeypatch):
    path = Path(interpreter(answering()))
    monkeypatch.chdir(path.parent)
    by_place = find(bench, base_python="./python", device="fake")
    monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")

    with open_bench(bench.settings, print) as other:
        by_name = find(other, base_python="python", device="fake")

    assert by_place.base.python == by_name.base.python == str(path)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Error: no libpython' >&2; exit 3", "no libpython"),
        ("exit 3", "status 3"),
        ("true", "no Python"),
        ('echo "$@"', "no Python"),
        ("echo '[1, 2]'", "no Python"),
    ],
)
def test_what_is_no_interpreter_is_a_usage_error_of_one_sentence(bench, interpreter, script, why):
    reason = refused(bench, base_python=interpreter(script))

    assert reason.kind == "base_python_broken" and why in reason.facts["why"]


def test_nothing_else_is_needed_to_run_the_base_on_the_fake_device():
    """In a process that finds nothing but the standard library, perfci, and what an interpreter is asked for."""
    code = f"""
import importlib.util, os, sys
ours = os.path.dirname(importlib.util.find_spec("perfci").origin)
allowed = {{*sys.stdlib_module_names, "perfci", *{sorted(NEEDED)!r}}}
class Blocked:
    def find_spec(self, name, path=None, target=None):
        asker = sys._getframe(1)
        while asker and "importlib" in asker.f_code.co_filename:
            asker = asker.f_back
        by_us = asker is not None and asker.f_code.co_filename.startswith(ours)
        if by_us and name.partition(".")[0] not in allowed:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Blocked())
import perfci.worker.child, perfci.worker.work, perfci.device.fake, perfci.measure
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr


# --- what a change is given -------------------------------------------------------------------------------------------


@pytest.fixture
def asking(forked):
    """A change that asks for a variable and a folder outside, beside a base that grants another variable."""
    table = forked.root / "pyproject.toml"
    git(forked.root, "checkout", "-q", "main")
    table.write_text('[tool.perfci]\nenvironment = ["MODEL"]\n')
    commit_all(forked.root)
    git(forked.root, "checkout", "-q", "topic")
    git(forked.root, "merge", "-q", "--no-edit", "main")
    table.write_text('[tool.perfci]\nenvironment = ["MODEL", "MINE"]\ncache_folder = "/elsewhere"\ntime_limit_s = 7\n')
    commit_all(forked.root)
    return load(forked.root)


@pytest.mark.parametrize(("ci", "environment"), [("true", ("MODEL",)), ("", ("MODEL", "MINE"))])
def test_in_a_pipeline_a_change_is_given_what_its_base_grants(asking, monkeypatch, ci, environment):
    monkeypatch.setenv("CI", ci)

    with open_bench(asking, print) as bench:
        assert bench.settings.environment == environment
        assert bench.settings.cache_folder == (None if ci else Path("/elsewhere"))
        assert bench.settings.time_limit_s == 7
        assert find(bench).base.changed_rules == ("pyproject.toml",)


def test_in_a_pipeline_a_change_whose_base_is_not_in_the_clone_is_given_nothing(asking, monkeypatch):
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("CI_MERGE_REQUEST_TARGET_BRANCH_NAME", "main")
    shallow = clone(asking.root, "--depth", "1")

    with open_bench(load(shallow), print) as bench:
        assert (bench.settings.environment, bench.settings.cache_folder) == ((), None)
        note = find(bench)
    assert note.kind == "merge_without_base"
    assert "fetch-depth: 0" in sentence(note)


def test_in_a_pipeline_without_a_default_branch_nothing_is_given_and_on_it_what_it_says(asking, monkeypatch):
    monkeypatch.setenv("CI", "true")
    shallow = clone(asking.root, "--depth", "1")
    git(shallow, "remote", "set-head", "origin", "--delete")  # which a pipeline's clone has not

    with open_bench(load(shallow), print) as bench:
        assert bench.settings.environment == ()
        assert find(bench).kind == "no_default_branch"
    monkeypatch.setenv("CI_COMMIT_BRANCH", "topic")
    monkeypatch.setenv("CI_DEFAULT_BRANCH", "topic")
    with open_bench(load(shallow), print) as bench:
        assert bench.settings.environment == ("MODEL", "MINE")


@pytest.mark.parametrize("table", [None, "[tool.perfci\n", "[tool.perfci]\nenvironment = 3\n"])
def test_a_base_whose_settings_cannot_be_read_grants_nothing(asking, table):
    assert take_grants(asking, table and table.encode()).environment == ()
