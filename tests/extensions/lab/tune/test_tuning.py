"""`perfci tune` from the command to the file, on the fake device, over a kernel with a planted best configuration."""

import json
import shutil
import textwrap
from pathlib import Path

import pytest
import yaml

from perfci.cli.main import run

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

FILES = {
    **TEXTS,
    **{
        f"blur/blur_{part}.py": f"""
        import perfci
        from blur_baseline import blur as reference, make_inputs
        from blur_triton import blur as kernel

        {part} = perfci.{part.title()}(
            kernel=kernel, reference=reference, make_inputs=make_inputs, cases=perfci.grid(rows=[4, 16]){more}
        )
        if __name__ == "__main__":
            perfci.main({part})
        """
        for part, more in (("accuracy", ", layouts=('contiguous',)"), ("performance", ""))
    },
}
SPACE = {"config": {"block": [16, 32, 64, 128, 256], "warps": [1, 2, 4, 8]}, "entries": [{"rows_max": 8}, {}]}
BEST = {"rows_max=8": {"block": 128, "warps": 2}, "*": {"block": 32, "warps": 2}}


class Project:
    """A project with the op blur."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys
        self.folder = root / "kernels" / "blur"
        self.tuned = self.folder / "tuned" / "fake-one.json"
        self.state = root / "reports" / "tune" / "blur-fake-one.jsonl"
        for name, text in FILES.items():
            path = root / "kernels" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(textwrap.dedent(text).lstrip())
        self.space(SPACE)

    def copy_op(self, name: str) -> None:
        """The same op under another name."""
        shutil.copytree(self.folder, self.folder.with_name(name))
        for path in [*self.folder.with_name(name).glob("*.py")]:
            path.with_name(path.name.replace("blur", name)).write_text(path.read_text().replace("blur", name))
            path.unlink()

    def space(self, tree) -> None:
        self.tuned.parent.mkdir(exist_ok=True)
        (self.tuned.parent / "space.json").write_text(json.dumps(tree))

    def edit(self, before: str, after: str) -> None:
        path = self.folder / "blur_triton.py"
        assert before in path.read_text()
        path.write_text(path.read_text().replace(before, after))

    def keep(self, configs) -> None:
        self.tuned.write_text(json.dumps({"about": "Kept.", "configs": configs}))

    def tune(self, *options: str, op: str = "blur") -> tuple[int, str, str]:
        self._capsys.readouterr()
        code = run(["tune", op, "--device", "fake", "--seed", "5", "--project", str(self.root), *options])
        seen = self._capsys.readouterr()
        return code, seen.out, seen.err

    def answer(self, *options: str) -> dict:
        code, out, err = self.tune("--format", "json", *options)
        assert code in {0, 3}, err
        return json.loads(out)

    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.state.read_text().splitlines()[1:]]

    def refused(self, *options: str, op: str = "blur") -> str:
        code, _, err = self.tune(*options, op=op)
        assert code == 1
        return " ".join(err.splitlines()[-1].split())


@pytest.fixture
def project(tmp_path, capsys):
    return Project(tmp_path / "project", capsys)


def failures(answer):
    """Kinds of what failed, by configuration."""
    candidates = [candidate for entry in answer["entries"] for candidate in entry["candidates"] if candidate["failure"]]
    return {
        (candidate["config"]["block"], candidate["config"]["warps"]): candidate["failure"]["kind"]
        for candidate in candidates
    }


def test_coarse_grid_and_refinement_find_what_was_planted_for_each_entry_and_write_it(project):
    code, out, err = project.tune("--write")

    assert code == 0, err
    assert json.loads(project.tuned.read_text())["configs"] == [
        {"rows_max": 8, "config": BEST["rows_max=8"]},
        {"config": BEST["*"]},
    ]
    assert "takes block=128 warps=2" in out
    assert "Written: " in out


def test_a_fast_wrong_candidate_and_one_without_resources_are_kept_with_their_reasons_and_never_win(project):
    answer = project.answer()

    kinds = failures(answer)
    assert kinds[256, 1] == "timed_output_wrong"
    assert kinds[256, 8] == "tune_out_of_resources"
    assert {entry["entry"]: entry["config"] for entry in answer["entries"]} == BEST


def test_a_search_that_was_interrupted_goes_on_and_measures_nothing_twice(project):
    whole = project.answer()
    lines = project.state.read_bytes().splitlines(keepends=True)
    project.state.write_bytes(b"".join(lines[:8]) + lines[8][:20])
    kept = [json.loads(line) for line in lines[1:8]]

    again = project.answer()

    assert again["resumed"]
    assert project.lines()[:7] == kept
    names = [(line["regime"], json.dumps(line["config"]), line["stage"]) for line in project.lines()]
    assert len({*names}) == len(names)
    assert [entry["config"] for entry in again["entries"]] == [entry["config"] for entry in whole["entries"]]


def test_a_budget_that_is_spent_stops_the_search_and_the_same_command_goes_on(project):
    code, out, _ = project.tune("--budget", "0.01")
    assert code == 3
    assert "run the same command again to continue" in " ".join(out.split())
    assert not project.tuned.exists()

    assert project.answer()["late"] is False


def test_a_candidate_that_kills_its_process_is_kept_as_such_and_the_search_goes_on(project):
    project.edit("CRASHES = 0", "CRASHES = 64")

    answer = project.answer("--case", "rows=4")

    assert failures(answer)[64, 4] == "worker_died"
    assert answer["entries"][0]["config"] == BEST["rows_max=8"]


def test_a_winner_that_the_accuracy_suite_refuses_gives_way_to_the_next(project):
    accuracy = project.folder / "blur_accuracy.py"
    accuracy.write_text(accuracy.read_text().replace("rows=[4, 16]", "rows=[4, 5, 16]"))
    project.edit("return x * 2.0", "return x * (2.5 if (x.shape[0], block, warps) == (5, 128, 2) else 2.0)")

    answer = project.answer("--case", "rows=4")

    (entry,) = answer["entries"]
    assert failures(answer)[128, 2].startswith("wrong")
    assert entry["config"] in ({"block": 128, "warps": 1}, {"block": 64, "warps": 2}, {"block": 256, "warps": 2})


def test_a_choice_that_does_not_work_here_is_replaced(project):
    project.keep([{"config": {"block": 256, "warps": 8}}])

    answer = project.answer("--case", "rows=16")

    (entry,) = answer["entries"]
    assert (entry["config"], entry["change"]) == (BEST["*"], None)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_an_unknown_op_is_guessed(project):
    assert "did you mean blur" in project.refused(op="blurr").replace("--op ", "")


def test_a_space_with_no_valid_configuration_says_which_entry(project):
    project.space(SPACE | {"valid": ["block > 1000"]})

    assert "leaves nothing to try for the entry" in project.refused()


def test_an_op_that_is_wrong_as_it_is_today_is_not_tuned(project):
    accuracy = project.folder / "blur_accuracy.py"
    accuracy.write_text(accuracy.read_text().replace("rows=[4, 16]", "rows=[4, 5, 16]"))
    project.edit("return x * 2.0", "return x * (2.5 if x.shape[0] == 5 else 2.0)")

    assert "blur fails its accuracy suite as it is today" in project.refused("--case", "rows=4")


def test_a_tuned_file_edited_meanwhile_is_not_overwritten(project, monkeypatch):
    monkeypatch.setenv("PERFCI_WRITABLE", str(project.tuned.parent))
    project.keep([{"config": {"block": 64, "warps": 1}}])
    project.edit("CRASHES = 0", 'CRASHES = 0\nCALLS = []\nFILE = TUNED / "fake-one.json"')
    edit = "CALLS.append(1)\n    if len(CALLS) == 50:\n        FILE.write_text('{\"configs\": []}')"
    project.edit("def blur(x):", f"def blur(x):\n    {edit}")

    assert "was edited while the search was under way" in project.refused("--write")
    assert project.tuned.read_text() == '{"configs": []}'
