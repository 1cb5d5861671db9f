"""`perfci chain` from the command to the answer, on the fake device."""

import json
from pathlib import Path

import pytest
import yaml

from perfci.cli.main import run

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

CHAIN = TEXTS["chain"]


class Project:
    """A project with one op that a chain takes."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys
        self.path = root / "kernels" / "_chains" / "echo_chain.py"
        self.path.parent.mkdir(parents=True)
        (root / "kernels" / "_shared.py").write_text("FACTOR = 3\n")
        op = root / "kernels" / "shout" / "shout_triton.py"
        op.parent.mkdir()
        op.write_text("from _shared import FACTOR\n\n\ndef shout(x):\n    return x * FACTOR\n")
        self.write()

    def write(self, before: str = "BREAKS", after: str = "pass") -> None:
        self.path.write_text(CHAIN.replace(before, after).replace("BREAKS", "pass"))

    def chain(self, *arguments: str) -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(["chain", "--device", "fake", "--project", str(self.root), *arguments])
        seen = self._capsys.readouterr()
        return code, seen.out, seen.err

    def answer(self, *arguments: str) -> tuple[int, dict]:
        code, out, err = self.chain("--format", "json", "--seed", "7", *arguments)
        assert out, err
        return code, json.loads(out)["chains"][0]


@pytest.fixture
def project(tmp_path, capsys):
    return Project(tmp_path, capsys)


def verdicts(chain):
    return {case["case"]: case["verdict"] for case in chain["cases"]}


def test_a_sound_chain_passes_with_a_table_a_case(project):
    code, out, err = project.chain("echo")

    assert code == 0
    assert "echo: 3 cases (3 PASS)" in out
    assert out.count("stage ") == 3
    assert "Fake One" in out
    assert "echo: checking the chain, 3 checks" in err


def test_a_crash_costs_one_case_and_is_an_error_that_names_stage_and_case(project):
    project.write("BREAKS", "crash()")

    code, chain = project.answer()
    assert code == 2
    assert verdicts(chain) == {"rows=4": "PASS", "rows=8": "ERROR", "rows=16": "PASS"}
    (failure,) = chain["cases"][1]["failures"]
    told = failure["sentence"]
    assert told.startswith("echo crashed with SIGSEGV at kernels/_chains/echo_chain.py:")
    assert " during stage again of rows=8; its last output: Fatal Python error: Segmentation fault (" in told


def test_a_project_without_chains_is_told_where_they_belong_and_fails_only_if_one_is_named(project):
    project.path.unlink()

    code, out, _ = project.chain()
    assert code == 0
    assert "There are no chains in" in out

    code, out, _ = project.chain("--format", "json")
    assert (code, json.loads(out)["chains"]) == (0, [])

    code, _, err = project.chain("echo")
    assert code == 1
    assert "There are no chains in" in err


@pytest.mark.slow
@pytest.mark.torch
def test_the_projects_own_chains_are_right_in_tritons_interpreter(tmp_path, capsys):
    (tmp_path / "kernels").symlink_to(Path(__file__).parents[4] / "kernels", target_is_directory=True)
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")

    code = run(["chain", "--device", "cpu", "--seed", "3", "--format", "json", "--project", str(tmp_path)])
    verdicts_of = {chain["chain"]: verdicts(chain) for chain in json.loads(capsys.readouterr().out)["chains"]}
    assert code == 0
    assert [*verdicts_of] == ["float8_mlp", "norm_matmul_softmax", "transformer_block"]
    for told in verdicts_of.values():
        assert {case: verdict for case, verdict in told.items() if verdict != "UNCHECKED"} == dict.fromkeys(
            list(told)[:3], "PASS"
        )
