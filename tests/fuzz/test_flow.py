"""Every readable file is compared, judged and shown: in words only, without escapes, markup or reordering."""

import io
import json
import re
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from perfci import report, store
from perfci.cli import details, output, projects
from perfci.cli.main import run as command
from perfci.cli.output import print_parts
from perfci.core import codec
from perfci.core.model import Judgements, Run
from perfci.extensions.pictures.plots import Gallery
from perfci.judge import judge
from perfci.report import data
from perfci.thresholds.limits import Thresholds
from tests.fuzz import runs, values
from tests.stored_examples import write_baseline

UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff]")
"""What moves a terminal's cursor, changes its colours, or turns text round."""


FOREIGN_TAG = re.compile(r"<(?!/?(?:details|summary|br|sub|sup|img|b|p|a)\b)\w")
MENTION = re.compile(r"(?<!\S)@\w")


def find_foreign(markdown: str) -> list[str]:
    """Markup that no report of perfci has: other tags, links elsewhere, mentions of people."""
    parser = MarkdownIt("commonmark").enable("table")
    foreign = []
    for block in parser.parse(markdown):
        for token in (block, *(block.children or ())):
            address = str(token.attrs.get("href") or token.attrs.get("src") or "")
            if re.match(r"\w+:|//", address):
                foreign.append(address)
            if token.type in ("html_block", "html_inline"):
                foreign += FOREIGN_TAG.findall(token.content)
            elif token.type == "text":
                foreign += MENTION.findall(token.content)
    return foreign


def told(run: Run, baselines: dict) -> Judgements:
    thresholds = Thresholds()
    return judge(run, baselines, thresholds)


def drawn(data: st.DataObject) -> tuple[Run, Judgements]:
    run = data.draw(runs.runs())
    return run, told(run, data.draw(runs.baselines(run)))


def printed(*parts: object, width: int = 100, terminal: bool = False) -> str:
    from rich.console import Console

    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=terminal, no_color=True, highlight=False)
    print_parts(parts, console)
    return file.getvalue()


@given(data=st.data())
def test_every_case_gets_a_verdict_and_a_sentence(data):
    run, judgements = drawn(data)

    answer = codec.encode(data_of(run, judgements))
    assert json.loads(answer)["gate"] == judgements.gate
    assert all(row.reasons or row.verdict.gate.value == "ok" for row in judgements.rows)


def data_of(run: Run, judgements: Judgements) -> dict:
    return data.to_json(judgements, run)


@given(data=st.data(), terminal=st.booleans(), width=st.integers(20, 200))
def test_no_escape_reaches_a_terminal(data, terminal, width):
    run, judgements = drawn(data)

    shown = [*output.list_verdicts(judgements, run), output.sum_up(judgements), *projects.show_ops(run.plan.ops)]
    for op in run.ops:
        shown += details.show_op(op, judgements.rows, run)

    text = printed(*shown, width=width, terminal=terminal)
    if terminal:  # bold and dim are rich's own
        text = re.sub("\x1b\\[[0-9;]*m", "", text)
    assert not UNSEEN.search(text), UNSEEN.search(text)


@given(data=st.data())
def test_no_markup_reaches_the_report(data):
    run, judgements = drawn(data)

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch("perfci.extensions.pictures.plots.Painter.draw_all", return_value=Gallery({})),
    ):
        text = report.write(run, judgements, Path(folder)).read_text(encoding="utf-8")

    assert not UNSEEN.search(text), UNSEEN.search(text)
    assert not find_foreign(text)


def files(run: Run, baselines: dict, folder: Path) -> list[list[str]]:
    """A project with this run and these baselines, and the commands that read them."""
    (folder / "kernels").mkdir()
    store.write_run(run, folder / "reports")
    for baseline in baselines.values():
        write_baseline(baseline, folder / "baselines")
    path, where = str(folder / "reports" / "run.json"), ["--project", str(folder)]
    commands = (
        "compare",
        "compare --format json",
        "show",
        "show --format json",
        "accept",
        "accept --dirty",
        "report --to csv --verdicts",
        "accept --environment",
        "report",
    )
    return [[first, path, *options, *where] for first, *options in (command.split() for command in commands)]


@settings(max_examples=10)
@given(data=st.data())
def test_every_command_answers_or_says_in_a_sentence_why_not(data):
    run = data.draw(st.one_of(runs.runs(), values.records(Run)))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "project"
        folder.mkdir()
        for arguments in files(run, {}, folder):
            out, err = _Output(), io.StringIO()
            with redirect_stdout(out), redirect_stderr(err):
                code = command(arguments)
            assert code in (0, 1, 2, 3)
            assert not UNSEEN.search(out.text() + err.getvalue())
        assert {path.name for path in Path(name).iterdir()} == {"project"}


class _Output(io.TextIOWrapper):
    """Standard output, its bytes included."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)

    def text(self) -> str:
        return self.buffer.getvalue().decode()


@pytest.mark.slow
@settings(max_examples=4)
@given(data=st.data())
def test_pictures_of_absurd_numbers_are_drawn(data):
    run, judgements = drawn(data)

    with tempfile.TemporaryDirectory() as folder:
        assert report.write(run, judgements, Path(folder)).exists()


@pytest.mark.parametrize("markup", ["[x](http://evil)", "![x](//evil/y.png)", "<script>x</script>", "hello @all"])
def test_foreign_markup_is_recognised(markup):
    assert find_foreign(markup)
    assert not find_foreign(f"`` ` `` and `{markup}`")
