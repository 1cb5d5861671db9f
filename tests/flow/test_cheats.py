"""Kernels that cheat: each trick is planted in a sound op, and has to be WRONG or SUSPECT.

In Triton's interpreter tests/flow/test_sixty_cheats.py has tricks of each sort.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from perfci.cli.main import run

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

pytestmark = [pytest.mark.torch, pytest.mark.slow]

SOUND = TEXTS["sound"]
HONEST = "def double(x):\n    return honest(x)\n"


@dataclass(frozen=True)
class Cheat:
    """A trick, and the kinds of reasons by which it shows on a device."""

    code: str
    shows: str


CHEATS = {name: Cheat(**cheat) for name, cheat in TEXTS["cheats"].items()}
WARMED = Cheat(**TEXTS["warmed"])


def write(project: Path, double: str, cache: str = "cold") -> None:
    """A project with the one op."""
    folder = project / "kernels" / "double"
    folder.mkdir(parents=True)
    (folder / "double_triton.py").write_text(SOUND + "\n\n" + double)
    (folder / "double_baseline.py").write_text(
        "import torch\n\n\ndef double(x):\n    return x * 2 + 1\n\n\n"
        "def make_inputs(rows, cols, device, seed):\n"
        "    generator = torch.Generator(device).manual_seed(seed)\n"
        '    return {"x": torch.randn(rows, cols, device=device, generator=generator)}\n'
    )
    for suite, kind, rows in (("accuracy", "Accuracy", [1, 5]), ("performance", "Performance", [65536])):
        more = 'values=("normal",)'
        if suite == "performance":
            more = f"bytes_moved=lambda rows, cols: 8 * rows * cols, cache={cache!r}"
        (folder / f"double_{suite}.py").write_text(
            "import perfci\n"
            "from double_baseline import double as reference, make_inputs\n"
            "from double_triton import double as kernel\n\n"
            f"{suite} = perfci.{kind}(kernel=kernel, reference=reference, make_inputs=make_inputs, "
            f"cases=perfci.grid(rows={rows}, cols=[2048]), {more})\n"
        )


def check(project: Path, capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, set[str], set[str]]:
    """Exit code, verdicts, and all kinds of reasons."""
    capsys.readouterr()
    code = run(["check", *options, "--duel", "none", "--format", "json", "--project", str(project)])
    said = capsys.readouterr()
    assert said.out, said.err
    rows = json.loads(said.out)["verdicts"]
    kinds = {reason["kind"] for row in rows for reason in (row["reason"], *row["also"]) if reason}
    return code, {row["verdict"] for row in rows}, kinds


@pytest.mark.cuda
@pytest.mark.parametrize("timer", ["activity", "event"])
@pytest.mark.parametrize("cheat", CHEATS)
def test_a_cheat_is_wrong_or_suspect_on_a_device(cheat, timer, tmp_path, capsys):
    write(tmp_path / "project", CHEATS[cheat].code)

    code, verdicts, kinds = check(tmp_path / "project", capsys, "--device", "cuda", "--timer", timer)

    assert code in {2, 3}
    assert verdicts & {"WRONG", "SUSPECT"}
    assert kinds & {*CHEATS[cheat].shows.split()}, kinds


@pytest.mark.cuda
def test_an_answer_worked_out_in_the_calls_that_warm_is_wrong(tmp_path, capsys):
    write(tmp_path / "project", WARMED.code, cache="warm")

    code, verdicts, kinds = check(tmp_path / "project", capsys, "--device", "cuda")

    assert (code, verdicts & {"WRONG"}) == (2, {"WRONG"})
    assert kinds & {*WARMED.shows.split()}, kinds


@pytest.mark.cuda
@pytest.mark.parametrize(("timer", "cache"), [("activity", "cold"), ("event", "cold"), ("activity", "warm")])
def test_the_honest_kernel_is_neither_on_a_device(timer, cache, tmp_path, capsys):
    write(tmp_path / "project", HONEST, cache)

    code, verdicts, _ = check(tmp_path / "project", capsys, "--device", "cuda", "--timer", timer)

    assert (code, verdicts) == (0, {"PASS", "NEW"})
