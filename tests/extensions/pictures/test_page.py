import base64
import hashlib
import random
import re
import shlex
from collections import Counter
from dataclasses import replace

import pytest

from perfci.core import environment, wording
from perfci.core.model import Judgements, Suite, Verdict
from perfci.extensions.pictures import page as pages
from perfci.report import frame, text
from perfci.report.sections import Material

ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "section", "a", "h1", "h2", "h3", "h4", "p"),
    *("ul", "li", "dl", "div", "dt", "dd", "span", "strong", "em", "b", "small", "code", "pre", "wbr"),
    *("details", "summary", "figure", "figcaption", "table", "thead", "tbody", "tr", "th", "td"),
    *("form", "label", "input", "select", "option", "button", "noscript", "script"),
    "img",
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "hidden", "type", "href", "role", "tabindex"),
    *("scope", "colspan", "open", "value", "placeholder", "autocomplete", "spellcheck"),
    *("aria-label", "aria-labelledby", "aria-live", "aria-pressed"),
    *("data-sort", "data-key", "data-op", "data-verdict", "data-rank", "data-label", "data-n"),
    *("alt", "src"),
}
EXAMPLES = ("full", "duelled", "hostile", "compiled", "on_cpu", "failed_op")
HOSTILE = (
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus x='",
    "javascript:alert(1)",
    "--></style><img src=x onerror=alert(1)>",
    "\u202eevil\u2066 \x1b[31mred\x1b[0m\x00",
    "{{ 7 * 7 }} {% raw %} {shown}",
    "x" * 10_000,
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_holds_known_elements_and_attributes_only(page, name):
    nodes = list(page(name).root.all())

    assert {node.name for node in nodes} <= ELEMENTS
    assert {attribute for node in nodes for attribute in node.attributes} <= ATTRIBUTES


@pytest.fixture(scope="module")
def benign(examples, read_page, tmp_path_factory):
    return build(examples, read_page, tmp_path_factory.mktemp("benign"), "name")


@pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_becomes_markup_wherever_it_stands(examples, read_page, tmp_path, benign, evil):
    built = build(examples, read_page, tmp_path, evil)

    assert counted(built.root) == counted(benign.root)
    assert {node.name for node in built.root.all()} <= ELEMENTS
    assert {attribute for node in built.root.all() for attribute in node.attributes} <= ATTRIBUTES
    links = [node.attributes["href"] for node in built.root.all("a")]
    assert all(re.fullmatch(r"#[\w-]+", link) for link in links)
    assert not re.search("[\u202e\u2066\x00\x1b]", built.source)


def build(examples, read_page, folder, evil):
    """A page into which a name got in every place that foreign text has."""
    case = replace(examples.performance_case("n=1", 5.0), case=evil, dtype=evil)
    case = replace(case, compiled=tuple(replace(one, name=evil, constants=evil) for one in case.compiled))
    arms = [{**block.arms, f"arm {evil}": block.arms["kernel"]} for block in case.blocks]
    case = replace(case, blocks=tuple(replace(block, arms=arm) for block, arm in zip(case.blocks, arms, strict=True)))
    fine = replace(case, case=f"fine {evil}")
    failed = examples.reason("example_raised", error=evil, message=evil)
    op = examples.OpRun(evil, (examples.accuracy_case("n=1", evil, failure=failed, layout=evil),), (case, fine))
    seen = replace(
        examples.comparison(evil, case),
        differs=environment.differences([examples.environment(host=evil)], examples.environment(packages={evil: evil})),
    )
    rows = (
        examples.judgement(evil, evil, examples.Verdict.ERROR, failed, seen, more=(failed,)),
        examples.judgement(
            evil, f"fine {evil}", examples.Verdict.PASS, failed, examples.comparison(evil, fine), more=(failed,)
        ),
    )
    hurt = examples.environment(branch=evil, host=evil, packages={evil: evil}, variables={evil: evil})
    run = examples.run([op], hurt, command=evil)
    return read_page(run, Judgements(rows, notes=(failed,)), folder)


def counted(root):
    """Elements by name and the names of their attributes, but for those that a long name adds: it is shown in full."""
    added = {"wbr", "code", "details", "summary", "pre"}
    return Counter((node.name, *sorted(node.attributes)) for node in root.all() if node.name not in added)


def test_data_end_no_script_and_come_back_as_they_were(page):
    root = page("hostile")
    data = root.root.one("script", id="data").text

    assert not re.search("[<>&]", data)
    assert root.data["words"]["shown"] == "{shown} of {count} rows"


def test_only_our_own_script_and_style_may_run(page):
    root = page("full").root
    (policy,) = [node.attributes["content"] for node in root.all("meta", **{"http-equiv": "Content-Security-Policy"})]

    scripts = [node.text for node in root.all("script") if "type" not in node.attributes]
    styles = [node.text for node in root.all("style")]
    assert policy.split("; ")[0] == "default-src 'none'"
    assert "unsafe" not in policy
    for kind, (part,) in (("script-src", scripts), ("style-src", styles)):
        digest = base64.b64encode(hashlib.sha256(part.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_id_is_there_once_and_every_link_leads_somewhere(page, name):
    root = page(name).root
    ids = [node.attributes["id"] for node in root.all() if "id" in node.attributes]

    assert len(ids) == len(set(ids))
    assert {node.attributes["href"][1:] for node in root.all("a")} <= set(ids)


def test_how_a_change_alters_its_own_judging_comes_first(page):
    main = page("duelled").root.one("main")
    first, second = [node for node in main.children if not isinstance(node, str)][:2]

    assert "alters how it is judged" in first.text
    assert second.attributes["class"] == "headline"


def test_an_op_has_its_pictures_and_its_tables(page):
    root = page("full").root
    sections = {node.attributes["data-op"]: node for node in root.all("details", class_="op")}

    assert list(sections) == ["softmax", "matmul", "broadcast", "bias_relu"]
    titles = [picture.attributes["alt"] for picture in sections["softmax"].all("img")]
    assert "Block medians of softmax" in titles
    assert "softmax: accuracy" in [node.text for node in sections["softmax"].all("h4")]
    assert "open" in sections["matmul"].attributes
    assert "open" not in sections["broadcast"].attributes


@pytest.mark.nightly
def test_a_run_of_many_cases_folds_what_is_fine_and_stays_small(page):
    root = page("large")
    bodies = [body for body in root.root.one("table", id="table").all("tbody") if "data-key" in body.attributes]

    assert len(bodies) == 200
    assert sum("folded" in body.attributes["class"].split() for body in bodies) == 150
    assert len(root.source.encode()) < 2_000_000


def test_every_text_of_the_page_goes_through_the_catalogues(examples, read_page, monkeypatch, tmp_path):
    class Marked(dict):
        def get(self, key, default=None):
            return f"\u300c{key}\u300d"

    told = {kind: f"\u300c{template}\u300d" for kind, template in wording.catalogue().items()}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": told)
    monkeypatch.setattr(wording, "phrases", lambda language: {} if language == "en" else Marked())
    with wording.speaking("zh"):
        page = read_page(*examples.duelled(), tmp_path)

    texts = [" ".join(spoken(page.root.one("body"))), *page.data["words"].values()]
    assert {word for text in texts for word in unmarked(text)} - NAMES == set()


NAMES = {
    *("perfci", "FAILS", "NVIDIA", "CUDA", "GPU", "Linux", "Python", "torch", "triton", "runner", "activity"),
    *("attention", "bias_relu", "broadcast", "gelu", "layernorm", "matmul", "softmax", "softmax_kernel", "kernel"),
    *("float", "us", "ms", "KiB", "MiB", "GiB", "GB", "TFLOP", "bytes", "moved", "operations", "a", "byte", "s"),
    *("copy", "limit", "ridge", "to", "check", "show", "accept", "doctor", "selftest", "op", "case", "seed", "against"),
    *("rows", "cols", "dtype", "m", "n", "k", "measured", "ceiling"),
}  # proper names, ops, units, and labels of the pictures that the page shares


def spoken(node):
    """Texts that are read: outside of code, commands and scripts."""
    for child in node.children:
        if isinstance(child, str):
            yield child
        elif child.name not in {"code", "pre", "script", "style", "option"} and "chip" not in child.attributes.get(
            "class", ""
        ):
            yield from spoken(child)


def unmarked(text):
    while (inner := re.sub("\u300c[^\u300c\u300d]*\u300d", "", text)) != text:
        text = inner
    if text.startswith(("perfci ", "expected:")):
        return set()
    return {word for word in re.findall(r"[A-Za-z][A-Za-z_']+", text) if not word.isupper()}  # verdicts are names too


# --- the table of cases -----------------------------------------------------------------------------------------------


def lines_of(example):
    run, judgements = example
    return pages.make_lines(Material(run, judgements, (), frame.find_clocks(run)))


def test_every_performance_case_has_a_line_of_its_own_and_accuracy_is_gathered(examples):
    duelled, full = lines_of(examples.duelled()), lines_of(examples.full())

    assert sum(line.row.verdict is Verdict.UNCHANGED and "broadcast/rows" in line.key for line in duelled) == 3
    assert "softmax/accuracy" in [line.key for line in full]


def test_opening_a_case_explains_it_and_repeats_it_alone_with_the_same_base_and_seed(examples):
    lines = lines_of(examples.duelled())
    step = next(line for line in lines if line.row.verdict is Verdict.REGRESSED and line.row.suite is Suite.PERFORMANCE)

    case = "rows=4096,cols=1024,dtype=float16"
    commands = [command for _, command in step.commands]
    assert f"perfci check softmax --case {case} --seed 20260102 --against 89abcdef0123" in commands
    assert f"perfci show --op softmax --case {case}" in commands
    assert any("compiles to other code" in text for text in step.why)


def test_no_command_ends_where_a_hostile_name_wants_it_to(examples):
    lines = lines_of(examples.hostile())

    commands = [line for section in lines for _, command in section.commands for line in command.splitlines()]
    assert commands and all(shlex.split(line)[0] == "perfci" for line in commands)


# --- text -------------------------------------------------------------------------------------------------------------


def test_foreign_text_reads_as_it_was_and_opens_no_element_but_code(parse):
    rng = random.Random(1)
    for _ in range(50):
        foreign = "".join(rng.choices("ab<>&\"'*_[]()!|~#@$ =:+-.1/\\`\ue000\ue001\ue002", k=60)).strip()
        element = parse(pages.write_marked(text.plain(foreign)))

        assert element.text.replace("`", "") == text.plain(foreign).replace("`", "")
        assert {node.name for node in element.all()} <= {"code"}
        assert all(not node.attributes for node in element.all())
