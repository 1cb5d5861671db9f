"""The site: its pages and their states, for any names and numbers of a history, and its folder."""

import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from perfci.cli.main import run
from perfci.core import wording
from perfci.core.errors import UsageError
from perfci.core.model import Reason
from perfci.extensions.history import site
from perfci.extensions.history.site import OpOnDevice, Trend, read_kept, render_op, safe_name
from tests import site_histories as histories
from tests.extensions.pictures.conftest import parsed

HOSTILE = (
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "javascript:alert(1)",
    "--></style><img src=x onerror=alert(1)>",
    "\u202eevil\u2066 \x1b[31mred\x1b[0m\x00",
    "{{ 7 * 7 }} {% raw %} {shown} `x` **y** [z](http://evil)",
    "x" * 10_000,
)
H200 = OpOnDevice("nvidia-h200", "softmax")


@pytest.fixture(scope="module")
def softmax():
    """Sixty runs in which everything happens."""
    runs = histories.softmax()
    return histories.kept(runs)


@pytest.fixture(scope="module")
def page(softmax):
    return parsed(render_op(softmax)[0])


@pytest.fixture
def root(tmp_path):
    """A project of two devices, and two ops with names that differ by case alone."""
    runs = histories.steady(count=5)
    places = (("nvidia-h200", "softmax"), ("nvidia-h200", "Softmax"), ("ascend-910b", "softmax"))
    return histories.project(tmp_path, dict.fromkeys(places, runs))


def build(root, out="public"):
    return site.build(root / "baselines", root, root / out)


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- the whole --------------------------------------------------------------------------------------------------------


def test_every_op_and_device_has_a_page(root):
    made_site = build(root)

    assert files(root / "public") == [
        "ascend-910b/softmax.html", "index.html", "nvidia-h200/Softmax-02fc7694.html", "nvidia-h200/softmax.html",
    ]  # fmt: skip
    assert (made_site.notes, made_site.gone, len(made_site.pages)) == ((), (), 3)


def test_every_link_leads_to_a_page(root):
    build(root)
    pages = list((root / "public").rglob("*.html"))
    links = [(page, node.attributes["href"]) for page in pages for node in parsed(page.read_text("utf-8")).all("a")]
    followed = [(page.parent / link.partition("#")[0]).resolve() for page, link in links if not link.startswith("#")]

    # From the index's table, back to it, and to the same op on the other device.
    assert len(followed) == 3 + 3 + 2
    assert all(path.is_file() and path.is_relative_to(root / "public") for path in followed)


def test_the_same_history_gives_the_same_bytes(root):
    build(root)
    build(root, "again")

    for name in files(root / "public"):
        assert (root / "public" / name).read_bytes() == (root / "again" / name).read_bytes()


def test_a_damaged_history_is_shown_as_damaged_and_the_others_go_on(root):
    path = root / "baselines" / "ascend-910b" / "softmax.history.jsonl"
    path.write_bytes(b"\x00\xff\n" + path.read_bytes())
    made_site = build(root)

    assert len(made_site.pages) == 3
    assert [note.kind for note in made_site.notes] == ["history_damaged"]
    index = parsed(made_site.index.read_text("utf-8"))
    rows = index.one("table", id="table").all("tbody")
    states = {node.attributes["data-key"]: node.attributes["data-state"] for node in rows}
    assert next(iter(states.items())) == ("ascend-910b/softmax.html", "damaged")
    assert list(states.values()).count("damaged") == 1
    assert str(root) not in index.text


# --- what is kept -----------------------------------------------------------------------------------------------------


def read(root: Path, place=H200):
    return read_kept(root / "baselines", place, root)


def test_a_damaged_line_is_a_problem_and_the_others_are_read(root):
    path = root / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "{damaged}\n", *lines[1:]]))

    kept = read(root)
    assert [run.run for run in kept.past.runs] == [f"run-{number:04}" for number in range(5)]
    assert kept.damaged
    assert kept.problems[0].facts["path"] == "baselines/nvidia-h200/softmax.history.jsonl"


# --- pages ------------------------------------------------------------------------------------------------------------


def hurt(evil):
    """A history into which a name got in every place that foreign text has."""
    runs = [
        histories.run(at, [histories.case(histories.random.Random(at), evil, 5.0, 7.0)], uuid=evil) for at in range(6)
    ]
    check = histories.checks(histories.random.Random(1))[0]
    runs = [replace(one, accuracy=(replace(check, case=evil),)) for one in runs]
    packages = {"torch": f"other {evil}"}
    runs[3] = replace(runs[3], environment=replace(runs[3].environment, packages=packages), inconclusive=(evil,))
    runs[4] = replace(runs[4], epoch=histories.Epoch(evil, (evil,)))
    problem = Reason("history_damaged", {"path": evil, "why": evil})
    return histories.kept(runs, op=evil, device=evil, problems=(problem,))


def built(evil):
    page, entry = render_op(hurt(evil), [OpOnDevice(f"other {evil}", evil)])
    index = site.render_index([entry], evil, [Reason("site_without_history", {"folder": evil})])
    return [(parsed(source), source) for source in (page, index)]


def counted(root):
    return Counter((node.name, *sorted(node.attributes)) for node in root.all() if node.name not in {"wbr", "code"})


@pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_becomes_markup_and_links_lead_within_the_site(evil):
    for (hostile_page, source), (benign, _) in zip(built(evil), built("name"), strict=True):
        assert counted(hostile_page) == counted(benign)
        assert not re.search("[\u202e\u2066\x00\x1b]", source)
        links = [node.attributes["href"] for node in hostile_page.all("a")]
        page = r"(\.\./)?(index\.html|[\w-]+/[\w-]+\.html)"
        assert all(re.fullmatch(f"#cases|{page}", link) for link in links)
        assert all(link.isascii() for link in links)


def test_nothing_is_fetched_and_only_our_own_script_runs(page):
    (policy,) = [node.attributes["content"] for node in page.all("meta", **{"http-equiv": "Content-Security-Policy"})]
    (script,) = [node.text for node in page.all("script") if "type" not in node.attributes]
    (style,) = [node.text for node in page.all("style")]

    assert policy.startswith("default-src 'none'; ")
    for kind, text in (("script-src", script), ("style-src", style)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy
    assert not re.search(r"url\(|@import|https?:", style)
    assert not [node for node in page.all() if "style" in node.attributes]


def test_the_gravest_case_comes_first_with_its_trend_and_what_to_do(page):
    rows = [node for node in page.all("tbody") if "data-key" in node.attributes]

    assert rows[0].attributes["data-state"] == "stepped"
    assert "perfci bisect softmax" in rows[0].text
    assert len(rows) == len(list(page.all("svg"))) == 11
    (line,) = [node for node in rows[0].all("path") if "class" not in node.attributes]
    assert line.attributes["d"].count("L") == 59
    assert [mark.text for mark in rows[0].all("title")] == ["environment", "step", "environment"]


def test_a_case_that_was_renamed_is_gone(page):
    (row,) = [node for node in page.all("tbody") if node.attributes.get("data-state") == "gone"]

    assert "renamed after run 20" in row.text


def test_an_entry_of_the_index_sums_its_op_up(softmax):
    _, entry = render_op(softmax)

    assert entry.place.page == "nvidia-h200/softmax.html"
    assert entry.cells[-1] == ("60", 60)
    assert entry.last.startswith("2026-04-30 ")


def test_problems_stand_on_top():
    kept = histories.kept((), problems=(Reason("history_damaged", {"path": "x.jsonl", "line": 3, "why": "bad"}),))
    tree = parsed(render_op(kept)[0])

    assert "x.jsonl, line 3, is damaged" in tree.one("main").one("p", class_="first").text
    assert "No case of this op is kept here." in tree.text


def test_an_op_with_accuracy_alone_has_its_page():
    runs = [replace(histories.run(at, []), accuracy=histories.checks(histories.random.Random(at))) for at in range(5)]
    page, entry = render_op(histories.kept(runs))

    assert entry.state is Trend.ACCURACY
    assert "rows=7,cols=1,dtype=float16" in parsed(page).one("table", id="table").text


def test_a_page_is_in_the_language_that_is_spoken(softmax):
    with wording.speaking("zh"):
        page = parsed(render_op(softmax)[0])

    assert page.one("html").attributes["lang"] == "zh-CN"
    assert "Skip to the cases" not in page.text


# --- the folder -------------------------------------------------------------------------------------------------------

ODD = ("SoftMax", "softmax ", "../x", "a/b", "", ".", "..", "con", "NUL", "com1", "index", "a" * 200, "n\x00l",
       "\udcff", "x.html", "-x", "\u6ce8\u610f", "a\u202eb", "%2e%2e", "a?b#c")  # fmt: skip


def test_odd_names_become_names_that_are_safe_everywhere_and_differ():
    names = [safe_name(name) for name in (*ODD, "softmax", "Softmax", "SOFTMAX", "a b", "a-b", "a|b")]

    assert all(re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}", name) for name in names)
    assert len({name.lower() for name in names}) == len(names)


def test_a_folder_of_others_is_refused_and_left_alone(root):
    (root / "public").mkdir()
    (root / "public" / "mine.html").write_text("mine")

    with pytest.raises(UsageError, match="did not make"):
        build(root)
    assert files(root / "public") == ["mine.html"]


def test_only_its_own_pages_are_taken_away(root):
    build(root)
    (root / "public" / "nvidia-h200" / "mine.html").write_text("mine")
    for device in ("ascend-910b", "nvidia-h200"):
        (root / "baselines" / device / "softmax.history.jsonl").unlink()

    assert build(root).gone == ("ascend-910b/softmax.html", "nvidia-h200/softmax.html")
    assert not (root / "public" / "ascend-910b").exists()
    assert (root / "public" / "nvidia-h200" / "mine.html").is_file()


def test_a_case_that_a_partial_run_left_alone_is_not_gone():
    runs = histories.steady(count=5)
    living = tuple(case.case for case in runs[-1].cases[1:])
    partly = replace(runs[-1], cases=runs[-1].cases[:1], kept=living[:1])

    page, _ = render_op(histories.kept((*runs[:-1], partly)))

    cases = [node.attributes for node in parsed(page).all("tbody")]
    assert [case["data-key"] for case in cases if case.get("data-state") == "gone"] == list(living[1:])


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A project with one history, around the current folder."""
    histories.project(tmp_path, {("nvidia-h200", "softmax"): histories.steady(count=4)})
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_site_is_built_beside_the_project(project, capsys):
    assert run(["report", "--to", "site"]) == 0
    assert capsys.readouterr().out == "Site: public/index.html and 1 page.\n"
    assert (project / "public" / "nvidia-h200" / "softmax.html").is_file()


def test_no_history_is_a_warning_and_an_empty_site(project, capsys):
    (project / "baselines" / "nvidia-h200" / "softmax.history.jsonl").unlink()

    assert run(["report", "--to", "site"]) == 3
    assert "There is no history in baselines yet" in capsys.readouterr().out
    assert "There is no history in baselines yet" in (project / "public" / "index.html").read_text("utf-8")


def test_pages_that_are_taken_away_are_named(project, capsys):
    run(["report", "--to", "site"])
    path = project / "baselines" / "nvidia-h200" / "softmax.history.jsonl"
    path.rename(path.with_name("renamed.history.jsonl"))
    capsys.readouterr()

    assert run(["report", "--to", "site"]) == 0
    assert "Taken away, since what it showed is gone: nvidia-h200/softmax.html" in capsys.readouterr().out
