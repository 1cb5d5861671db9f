import base64
import hashlib
import json
import re
from collections import Counter
from dataclasses import replace

import pytest

from perfci.core import environment, wording
from perfci.core.model import Judgements
from perfci.report import html
from perfci.report.html import page as pages

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
    *("data-sort", "data-key", "data-op", "data-verdict", "data-rank", "data-packed", "data-label", "data-n"),
    *("alt", "src"),
}
EXAMPLES = ("small", "full", "duelled", "hostile", "compiled", "on_cpu", "failed_op", "stopped", "long_names")
HOSTILE = (
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus x='",
    "javascript:alert(1)",
    "--></style><img src=x onerror=alert(1)>",
    "@all /close #1 !2",
    "\u202eevil\u2066 \u05d0\u05d1",
    "\x1b[31mred\x1b[0m\x00",
    "{{ 7 * 7 }} {% raw %} {shown}",
    "<!--<script>",
    "]]> &lt;b&gt; \\u003c",
    "x" * 10_000,
)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_holds_known_elements_and_attributes_only(page, name):
    found = list(page(name).root.all())

    assert {node.name for node in found} <= ELEMENTS
    assert {attribute for node in found for attribute in node.attributes} <= ATTRIBUTES


@pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_no_name_becomes_markup_wherever_it_stands(examples, read_page, tmp_path, evil):
    benign = build(examples, read_page, tmp_path / "a", "name")
    found = build(examples, read_page, tmp_path / "b", evil)

    assert counted(found.root) == counted(benign.root)
    assert {node.name for node in found.root.all()} <= ELEMENTS
    assert {attribute for node in found.root.all() for attribute in node.attributes} <= ATTRIBUTES
    links = [node.attributes["href"] for node in found.root.all("a")]
    assert all(re.fullmatch(r"#[\w-]+", link) for link in links)
    assert not re.search("[\u202e\u2066\x00\x1b]", found.source)


def build(examples, read_page, folder, evil):
    """A page into which a name got in every place that foreign text has."""
    case = replace(examples.performance_case("n=1", 5.0), case=evil, dtype=evil)
    case = replace(case, compiled=tuple(replace(one, name=evil, constants=evil) for one in case.compiled))
    arms = [{**block.arms, f"arm {evil}": block.arms["kernel"]} for block in case.blocks]
    case = replace(case, blocks=tuple(replace(block, arms=each) for block, each in zip(case.blocks, arms, strict=True)))
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
    return read_page(html.write(run, Judgements(rows, notes=(failed,)), folder))


def counted(root):
    """Elements by name and the names of their attributes, but for those that a long name adds: it is shown in full."""
    added = {"wbr", "code", "details", "summary", "pre"}
    return Counter((node.name, *sorted(node.attributes)) for node in root.all() if node.name not in added)


def test_data_end_no_script_and_come_back_as_they_were(page):
    found = page("hostile")
    text = found.root.one("script", id="data").text

    assert not re.search("[<>&]", text)
    assert found.data["words"]["shown"] == "{shown} of {count} rows"


def test_only_our_own_script_and_style_may_run(page):
    root = page("full").root
    (policy,) = [node.attributes["content"] for node in root.all("meta", **{"http-equiv": "Content-Security-Policy"})]

    scripts = [node.text for node in root.all("script") if "type" not in node.attributes]
    styles = [node.text for node in root.all("style")]
    assert policy.split("; ")[0] == "default-src 'none'"
    assert "unsafe" not in policy
    for kind, (text,) in (("script-src", scripts), ("style-src", styles)):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_fetches_nothing(page, name):
    found = page(name)
    urls = [
        value for node in found.root.all() for key, value in node.attributes.items() if key in {"src", "href", "action"}
    ]

    assert all(url.startswith(("#", "data:image/svg+xml;base64,")) for url in urls)
    style = found.root.one("style").text
    assert "url(" not in style
    assert "@import" not in style


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


def test_the_gate_and_the_summary_stand_on_top(page):
    root = page("full").root

    assert root.one("h1").text == "perfci: FAILS"
    assert "1 REGRESSED" in root.one("ul", class_="summary").text


def test_cases_that_fail_stand_in_the_page_itself_and_the_others_packed(page):
    bodies = list(page("small").root.one("table", id="table").all("tbody", **{}))
    bodies = [body for body in bodies if "data-verdict" in body.attributes]

    slow, *fine = bodies
    assert slow.attributes["data-verdict"] == "REGRESSED"
    assert len(list(slow.all("img"))) == 1
    assert not any(list(body.all("img")) for body in fine)
    assert len(page("small").data["cases"]) == 2


def test_the_numbers_of_each_block_can_be_read(page):
    body = page("small").root.one("tbody", class_="fails")
    (numbers,) = body.all("details", class_="numbers")

    assert [th.text for th in numbers.all("th")][:4] == ["start, s", "process", "kernel, us", "reference, us"]
    assert len(list(numbers.one("tbody").all("tr"))) == 16


def test_an_op_has_its_curves_its_roofline_and_its_tables(page):
    root = page("full").root
    sections = {node.attributes["data-op"]: node for node in root.all("details", class_="op")}

    assert list(sections) == ["softmax", "matmul", "broadcast", "bias_relu"]
    titles = [picture.attributes["alt"] for picture in sections["softmax"].all("img")]
    assert "Time against size of softmax" in titles
    assert "softmax: accuracy" in [node.text for node in sections["softmax"].all("h4")]
    assert "open" in sections["matmul"].attributes
    assert "open" not in sections["broadcast"].attributes


def test_what_differs_from_the_baselines_is_told(examples, read_page, tmp_path):
    run, judgements = examples.small()
    was = examples.environment(packages={"torch": "2.12.0", "triton": "3.7.1"})
    stored = examples.stored("softmax", {"rows=4096,cols=512,dtype=float16": (4.9, 7.9)})
    stored = replace(stored, runs=tuple(replace(one, environment=was) for one in stored.runs))
    found = read_page(html.write(run, judgements, tmp_path, baselines={"softmax": stored}))

    cells = [[td.text for td in tr.all("td")] for tr in found.root.all("tr")]
    assert ["packages.torch", "2.12.0", "2.13.0", "yes"] in cells


def test_a_damaged_file_of_launches_is_told(examples, read_page, tmp_path):
    run, judgements = examples.small()
    (tmp_path / "launches.jsonl.gz").write_bytes(b"no gzip")
    found = read_page(html.write(run, judgements, tmp_path, tmp_path))

    assert "launches.jsonl.gz" in found.root.one("main").text


def test_the_same_run_gives_the_same_page(examples, tmp_path):
    first, second = (html.write(*examples.full(), tmp_path / name).read_bytes() for name in "ab")

    assert first == second


def test_nothing_but_the_page_is_written(examples, tmp_path):
    html.write(*examples.full(), tmp_path)

    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_run_of_many_cases_folds_what_is_fine_and_stays_small(page):
    found = page("large", True)
    bodies = [body for body in found.root.one("table", id="table").all("tbody") if "data-key" in body.attributes]

    assert len(bodies) == 500
    assert sum("folded" in body.attributes["class"].split() for body in bodies) == 450
    assert len(found.source.encode()) < 5_000_000


def test_a_page_in_chinese_says_so_and_has_the_same_numbers(page):
    english, chinese = page("full"), page("full", language="zh")

    assert english.root.one("html").attributes["lang"] == "en"
    assert chinese.root.one("html").attributes["lang"] == "zh-CN"
    numbers = [sorted(re.findall(r"\d+\.\d+ (?:us|MiB)", one.root.one("main").text)) for one in (english, chinese)]
    assert numbers[0] == numbers[1]


def test_every_text_of_the_page_goes_through_the_catalogues(examples, read_page, monkeypatch, tmp_path):
    class Marked(dict):
        def get(self, key, default=None):
            return f"\u300c{key}\u300d"

    told = {kind: f"\u300c{template}\u300d" for kind, template in wording.catalogue().items()}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": told)
    monkeypatch.setattr(wording, "phrases", lambda language: Marked())
    found = read_page(html.write(*examples.duelled(), tmp_path))

    texts = [" ".join(spoken(found.root.one("body"))), *strings([found.data["words"], found.data["cases"]])]
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
        elif child.name not in {
            "code",
            "pre",
            "script",
            "style",
            "option",
            "svg",
        } and "chip" not in child.attributes.get("class", ""):
            yield from spoken(child)


def strings(data):
    if isinstance(data, dict):
        return [text for value in data.values() for text in strings(value)]
    if isinstance(data, list):
        return [text for value in data for text in strings(value)]
    return [data] if isinstance(data, str) else []


def unmarked(text):
    while (inner := re.sub("\u300c[^\u300c\u300d]*\u300d", "", text)) != text:
        text = inner
    if text.startswith(("perfci ", "expected:")):
        return set()
    return {word for word in re.findall(r"[A-Za-z][A-Za-z_']+", text) if not word.isupper()}  # verdicts are names too


def test_numbers_that_are_none_are_refused_as_data():
    with pytest.raises(ValueError, match="JSON"):
        pages._data({"a": float("nan")})
    assert json.loads(pages._data({"a": "</script>&"})) == {"a": "</script>&"}
