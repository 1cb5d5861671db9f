"""The pages in docs/ are true: links lead somewhere, commands exist with these options, messages are perfci's own."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import typer.main

import perfci
from perfci.cli.app import app
from perfci.core.model import Verdict
from perfci.core.wording import catalogue

ROOT = Path(__file__).parents[1]
TERMS = (
    "tuning",
    "interface",
    "logic",
    "duel",
    "screen",
    "tau",
    "block",
    "arm",
    "A/A",
    "identity",
    "look",
    "span",
    "board",
)
OPS = sorted((ROOT / "docs/ops").glob("*.md"))
CHINESE = sorted((ROOT / "docs/zh").glob("*.md"))
PAGES = [
    *(ROOT / name for name in ("README.md", "README.zh-CN.md", "CONTRIBUTING.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *CHINESE,
    *OPS,
]
GROUP = typer.main.get_command(app)
COMMANDS = {name: GROUP.get_command(None, name) for name in GROUP.list_commands(None)}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def named(page):
    return page.name


def commands(page: Path) -> list[list[str]]:
    """Every perfci command that the page shows, in a block or in a line, as its words."""
    text = text_of(page)
    shown = re.findall(r"^\$ (perfci .*)$", text, re.MULTILINE) + re.findall(r"(?<!`)`(perfci [^`]*)`(?!`)", text)
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        shown += re.findall(r"^(perfci .*)$", block, re.MULTILINE)
    # Behind a pair of dashes stands another program's command.
    words = [_words(re.split("&&| # | -- ", command)[0]) for command in shown]
    return [command for command in words if len(command) > 1 and re.fullmatch(r"[a-z]+", command[1])]


def _words(command: str) -> list[str]:
    return shlex.split(re.sub(r"[\[\]()]", " ", command.replace("'", " ")))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_link_leads_somewhere(page):
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text_of(page), flags=re.MULTILINE | re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)#]+)[^)]*\)", prose) if "://" not in target]

    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_no_row_is_parted_from_its_table(page):
    """Behind an empty line a row is text, unless it is the head of a further table."""
    assert re.findall(r"(?m)^\|.*\n\n+(\|.*)\n(?!\| ?:?-)", text_of(page)) == []


def test_every_page_pins_the_tag_of_this_version():
    """Of the component, of the action, and of what pip installs; TAG stands for any."""
    pin = re.compile(r"(?:\bperfci(?:\.git|/check)?@|^ +ref: )(v?\d[\w.]*\b|~latest)", re.MULTILINE)
    pins = {(page.name, tag) for page in PAGES for tag in pin.findall(text_of(page))}

    assert {name for name, _ in pins} >= {"ci.md", "github.md", "gitlab.md", "npu.md"}
    assert sorted((name, tag) for name, tag in pins if tag != f"v{perfci.__version__}") == []


def test_every_page_that_the_code_and_its_messages_name_is_there():
    files = [path for ending in ("py", "yaml", "yml") for path in (ROOT / "perfci").rglob(f"*.{ending}")]
    names = {name for path in files for name in re.findall(r"docs/[\w/-]+\.md", text_of(path))}

    assert len(names) > 10
    assert [name for name in sorted(names) if not (ROOT / name).is_file()] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_command_exists_with_the_options_that_are_shown(page):
    for _, name, *rest in commands(page):
        assert name in COMMANDS, f"perfci {name}"
        command, words = COMMANDS[name], iter(rest)
        while (inner := getattr(command, "commands", None)) and (word := next(words, None)) in inner:
            command = inner[word]
        options = {option for parameter in command.params for option in parameter.opts} | {"--help"}
        assert {word.split("=")[0] for word in rest if word.startswith("--")} <= options, (name, rest)


@pytest.mark.parametrize("page", CHINESE, ids=named)
def test_the_chinese_page_has_the_code_and_the_commands_of_the_english_one(page):
    """In blocks and in lines, but for comments and where the tables and pictures lead."""

    def code(text: str) -> list[str]:
        blocks = re.findall(r"^```(?:sh|python|toml|yaml|text)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        return [re.sub(r"\s*# .*", "", block) for block in blocks]

    english = page.parent.parent / page.name

    assert code(text_of(page)) == code(text_of(english))
    assert commands(page) == commands(english)


def test_pages_show_commands_at_all():
    assert sum(len(commands(page)) for page in PAGES) > 50


TROUBLE = text_of(ROOT / "docs/troubleshooting.md").partition("## Words of others")[0]


@pytest.mark.parametrize("message", re.findall(r"^(?:### |\| )`(.+?)`", TROUBLE, re.MULTILINE))
def test_every_message_under_trouble_is_one_that_perfci_says(message):
    said = (re.sub(r"{(\w+):[^|}]*\|([^}]*)}", r"{\1} \2", template) for template in catalogue().values())
    assert any(message in template for template in said)


@pytest.mark.parametrize("heading", re.findall(r"^### ([A-Z]+)$", TROUBLE, re.MULTILINE))
def test_every_verdict_under_trouble_is_one_that_perfci_gives(heading):
    assert heading in set(Verdict)


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(ROOT / "docs")], ids=named)
def test_every_page_is_in_the_navigation_of_the_site(page):
    assert f" {page.relative_to(ROOT / 'docs').as_posix()}\n" in text_of(ROOT / "mkdocs.yml")


@pytest.mark.parametrize("term", [*Verdict, *TERMS])
def test_the_glossary_has_every_verdict_every_kind_of_change_and_what_reports_speak_of(term):
    assert f"**{term}**" in text_of(ROOT / "docs/glossary.md")


def ops_of(page: Path) -> list[str]:
    """The ops that a page is about: its title names them."""
    title = re.match(r"# (.+)\n", text_of(page))
    return title[1].split(" and ") if title else []


def test_every_op_has_a_page_and_every_page_an_op():
    told = sorted(op for page in OPS for op in ops_of(page))
    kernels = sorted(path.parent.name for path in (ROOT / "kernels").glob("[!_]*/*_triton.py"))

    assert told == kernels
    assert [page.name for page in OPS if page.stem not in ops_of(page)] == []


@pytest.mark.parametrize("page", OPS, ids=named)
def test_every_ops_page_has_its_point_on_the_roofline_and_what_was_measured(page):
    sections = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text_of(page), re.MULTILINE))
    intensity = [text for heading, text in sections.items() if "intensity" in heading.lower()]

    assert len(intensity) == 1
    assert " a byte" in intensity[0]
    assert "Measured" in sections or "The steps" in sections


@pytest.mark.parametrize("page", OPS, ids=named)
def test_commands_of_an_ops_page_are_about_its_op(page):
    asked = [words[2] for words in commands(page) if words[1] == "check" and not words[2].startswith("--")]

    assert set(asked) <= set(ops_of(page))


@pytest.mark.parametrize("page", OPS, ids=named)
def test_the_page_of_an_op_has_the_text_beside_its_kernel_in_the_place_of_another(page):
    """In the repository it is a link, on the site the text itself."""
    hooks = runpy.run_path(str(ROOT / "docs/_site/hooks.py"))
    title, links, _ = text_of(page).split("\n\n", 2)

    shown = hooks["show_ops"](text_of(page), ROOT)

    for op in title.removeprefix("# ").split(" and "):
        assert f"](../../kernels/{op}/{op}.md)" in links
        assert text_of(ROOT / "kernels" / op / f"{op}.md").partition("\n")[2].strip() in shown
    assert "../../kernels" not in shown
