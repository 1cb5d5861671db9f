import base64
import hashlib
import re
from collections import Counter
from dataclasses import replace

import pytest

from perfci.core import wording
from perfci.core.model import Reason
from perfci.report.site import pages
from perfci.report.site.kept import OpOnDevice

ELEMENTS = {
    *("html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "a", "h1", "h2", "h4", "p"),
    *("ul", "li", "dl", "div", "dt", "dd", "span", "b", "code", "pre", "wbr", "details", "summary"),
    *("figure", "img", "table", "thead", "tbody", "tr", "th", "td"),
    *("form", "label", "input", "select", "option", "button", "script"),
}
ATTRIBUTES = {
    *("lang", "charset", "http-equiv", "content", "name", "class", "id", "hidden", "type", "href", "role", "tabindex"),
    *("scope", "colspan", "value", "placeholder", "autocomplete", "spellcheck"),
    *("aria-label", "aria-labelledby", "aria-live", "aria-pressed", "data-chips", "data-list", "data-device"),
    *(
        "data-sort",
        "data-key",
        "data-op",
        "data-state",
        "data-rank",
        "data-packed",
        "data-open",
        "data-label",
        "data-n",
    ),
    *("alt", "src"),
}
HOSTILE = (
    "</script><script>alert(1)</script>",
    '" onmouseover="alert(1)',
    "' onfocus='alert(1)' autofocus x='",
    "javascript:alert(1)",
    "--></style><img src=x onerror=alert(1)>",
    "\u202eevil\u2066 \x1b[31mred\x1b[0m\x00",
    "{{ 7 * 7 }} {% raw %} {shown} `x` **y** [z](http://evil)",
    "<!--<script>",
    "x" * 10_000,
)


def hurt(histories, evil):
    """A history into which a text got in every place that has one."""
    cases = {evil: (5.0, 7.0, 100, None), f"more {evil}": (9.0, 11.0, None, 10**6)}
    runs = histories.steady(cases, count=6, commit=evil, driver=evil, uuid=evil, packages={evil: evil, "torch": evil})
    runs = [replace(one, created=evil, accuracy=(histories.checks(histories.random.Random(1))[0],)) for one in runs]
    runs = [replace(one, accuracy=(replace(one.accuracy[0], case=evil),)) for one in runs]
    packages = {"torch": f"other {evil}"}
    runs[3] = replace(runs[3], environment=replace(runs[3].environment, packages=packages), inconclusive=(evil,))
    runs[4] = replace(runs[4], epoch=histories.Epoch(evil, (evil,)))
    kept = histories.kept(
        runs, op=evil, device=evil, problems=(Reason("history_damaged", {"path": evil, "why": evil}),)
    )
    return replace(kept, past=replace(kept.past, steps=(replace(histories.step(runs, 3), why=evil),)))


def built(histories, parse, evil):
    page, entry = pages.render_op(hurt(histories, evil), [OpOnDevice(f"other {evil}", evil)])
    index = pages.render_index([entry], evil, [Reason("site_without_history", {"folder": evil})])
    return [(parse(source), source) for source in (page, index)]


def counted(root):
    return Counter((node.name, *sorted(node.attributes)) for node in root.all() if node.name not in {"wbr", "code"})


@pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_no_text_becomes_markup_wherever_it_stands(histories, parse, evil):
    for (found, source), (benign, _) in zip(
        built(histories, parse, evil), built(histories, parse, "name"), strict=True
    ):
        assert counted(found) == counted(benign)
        assert {node.name for node in found.all()} <= ELEMENTS
        assert {attribute for node in found.all() for attribute in node.attributes} <= ATTRIBUTES
        assert not re.search("[\u202e\u2066\x00\x1b]", source)


@pytest.mark.parametrize("evil", HOSTILE, ids=range(len(HOSTILE)))
def test_links_lead_within_the_site(histories, parse, evil):
    for found, _ in built(histories, parse, evil):
        links = [node.attributes["href"] for node in found.all("a")]
        assert all(re.fullmatch(r"#cases|\.\./index\.html|(\.\./)?[\w-]+/[\w-]+\.html", link) for link in links)
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


def test_the_gravest_case_comes_first_with_what_to_do(page):
    rows = [node for node in page.all("tbody") if "data-key" in node.attributes]

    assert rows[0].attributes["data-state"] in {"stepped", "crept"}
    assert "perfci bisect --op softmax" in rows[0].text
    assert [picture.attributes["alt"] for picture in page.all("img")] == [
        "Kernel times of softmax",
        "Errors of softmax",
    ]
    assert len(rows) == 11


def test_a_case_that_was_renamed_is_gone(page):
    (row,) = [node for node in page.all("tbody") if node.attributes.get("data-state") == "gone"]

    assert "renamed after run 20" in row.text


def test_an_entry_of_the_index_sums_its_op_up(softmax):
    _, entry = pages.render_op(softmax, ())

    assert entry.key == "nvidia-h200/softmax.html"
    assert [cell.number for cell in entry.cells][3:] == [60, 1]
    assert entry.last.startswith("2026-04-30 ")


def test_every_id_is_there_once(page):
    ids = [node.attributes["id"] for node in page.all() if "id" in node.attributes]

    assert len(ids) == len(set(ids))


def test_problems_stand_on_top(histories, parse):
    kept = histories.kept((), problems=(Reason("history_damaged", {"path": "x.jsonl", "line": 3, "why": "bad"}),))
    root = parse(pages.render_op(kept, ())[0])

    assert "x.jsonl, line 3, is damaged" in root.one("main").one("p", class_="first").text
    assert "No case of this op is kept here." in root.text


def test_an_op_with_accuracy_alone_has_its_page(histories, parse):
    runs = [replace(histories.run(at, []), accuracy=histories.checks(histories.random.Random(at))) for at in range(5)]
    page, entry = pages.render_op(histories.kept(runs), ())
    root = parse(page)

    assert entry.state is pages.Trend.ACCURACY
    assert "rows=7,cols=1,dtype=float16" in root.one("table", id="table").text
    assert root.one("img").attributes["alt"] == "Errors of softmax"


EXTREME = (1e-6, 1e15, 3.0)


@pytest.mark.parametrize("low", [*EXTREME, 0.0, 5e-324, 1e308])
@pytest.mark.parametrize("high", [*EXTREME, 1e308])
def test_numbers_of_any_size_have_their_page(histories, parse, low, high):
    runs = []
    for number in range(6):
        value = (low, high)[number % 2]
        us = min(max(value, 1e-6), 1e15)
        spread, stats = histories.Spread(us, us, us), histories.ErrorStats(1, value, p99_abs=value)
        amount, count = min(value, 1e18), int(min(value, 2**62))
        case = histories.HistoryCase(
            "n=1", 1, spread, spread, shift=(-50.0, 50.0)[number % 2], rsd=amount, flops=count, bandwidth_share=amount,
            compile_s=amount, peak_bytes=count, errors=stats,
        )  # fmt: skip
        check = histories.HistoryAccuracy("n=1", 1, stats)
        runs.append(histories.run(number, [case], accuracy=[check], created=f"000{1 + number}-01-01T00:00:00+14:00"))
    source = pages.render_op(histories.kept(runs), ())[0]

    assert parse(source)
    assert not re.search(r"\b(nan|inf)\b", source)


def test_the_index_has_the_gravest_first_and_its_reason(histories, parse):
    ops = [
        histories.kept(histories.steady(count=8), op="fine"),
        histories.kept(histories.steady(count=8), op="bad", problems=(Reason("history_conflicted", {"path": "p"}),)),
    ]
    root = parse(pages.render_index([pages.render_op(one, ())[1] for one in ops], "demo", ()))
    bodies = [node for node in root.all("tbody") if "data-key" in node.attributes]

    assert [body.attributes["data-key"] for body in bodies] == ["nvidia-h200/bad.html", "nvidia-h200/fine.html"]
    assert bodies[0].one("tr", class_="why").text.strip()
    assert [option.attributes["value"] for option in root.all("option")] == ["", "nvidia-h200"]


def test_every_text_goes_through_the_catalogues(softmax, parse, monkeypatch):
    class Marked(dict):
        def get(self, key, default=None):
            return f"\u300c{key}\u300d"

    sentences = {kind: f"\u300c{template}\u300d" for kind, template in wording.catalogue().items()}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": sentences)
    monkeypatch.setattr(wording, "phrases", lambda language: Marked())
    source, entry = pages.render_op(softmax, [OpOnDevice("ascend", "softmax")])
    index, page = parse(pages.render_index([entry], "demo", ())), parse(source)

    texts = [text for root in (index, page) for text in spoken(root.one("body"))]
    assert {word for text in texts for word in unmarked(text)} - NAMES == set()


NAMES = {
    *("softmax", "nvidia", "ascend", "demo", "NVIDIA", "activity", "torch", "Triton", "us", "ms", "GPU", "MiB", "bac"),
    *("rows", "cols", "dtype", "float", "bfloat", "device", "driver", "uuid", "packages", "triton", "New", "on", "all"),
    *("runners", "accumulation", "for", "agreed", "in", "and", "to"),
}  # proper names, fields, ids, and what people wrote


def spoken(node):
    """Texts that are read: outside of code, commands, scripts and commits."""
    for child in node.children:
        if isinstance(child, str):
            yield child
        elif child.name in {"li", "p"}:
            yield "".join(spoken_within(child))
        elif child.name not in {"code", "pre", "script", "style", "option"}:
            yield from spoken(child)


def spoken_within(node):
    """Of a sentence, whose code parts it."""
    for child in node.children:
        if isinstance(child, str) or child.name not in {"code", "pre"}:
            yield child if isinstance(child, str) else "".join(spoken_within(child))


def unmarked(text):
    while (inner := re.sub("\u300c[^\u300c\u300d]*\u300d", "", text)) != text:
        text = inner
    return set(re.findall(r"(?<![\w-])[A-Za-z]{2,}(?![\w-]*\d)", re.sub(r"\b[0-9a-f]{4,}\b", "", text)))


def test_a_page_is_in_the_language_that_is_spoken(softmax, parse):
    with wording.speaking("zh"):
        root = parse(pages.render_op(softmax, ())[0])

    assert root.one("html").attributes["lang"] == "zh-CN"
