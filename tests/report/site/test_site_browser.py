"""The site in a real browser: links, filters, keys, trends followed run by run, on a desk, on a phone and on paper."""

import importlib.util
import re
import shutil
from pathlib import Path

import pytest

from perfci.report import site

HERE = Path(__file__).parent


def load(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


browsers = load("perfci_test_browser_of_the_site", HERE.parent / "html" / "browser.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsers.executable() is None, reason="chromium is not installed here"),
]

ROWS = "[...document.querySelectorAll('#table > tbody')].filter((body) => body.getClientRects().length)"
PAGE = "nvidia-h200/softmax.html"
OPEN = "document.querySelector('tbody.open')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    found = browsers.Browser(tmp_path_factory.mktemp("chromium"))
    yield found
    found.close()


@pytest.fixture(scope="module")
def folder(histories, tmp_path_factory):
    """A site of a drifting op, a steady one, a damaged one, one with a single run, and one on another device."""
    root = tmp_path_factory.mktemp("demo")
    few = histories.steady(histories.SOFTMAX, count=12)
    places = {
        ("nvidia-h200", "softmax"): histories.softmax(), ("nvidia-h200", "matmul"): histories.steady(),
        ("nvidia-h200", "once"): few[:1], ("nvidia-h200", "broken"): few, ("ascend-910b", "softmax"): few,
        ("nvidia-h200", "a_name_that_is_" + "very_" * 12 + "long"): few[:3],
    }  # fmt: skip
    histories.project(root, places)
    path = root / "baselines" / "nvidia-h200" / "broken.history.jsonl"
    path.write_bytes(b"{torn\n" + path.read_bytes())
    site.build(root / "baselines", root / "thresholds", root, root / "public")
    return root / "public"


@pytest.fixture
def shown(browser, folder):
    """A page of the site in the browser, which may complain about nothing."""

    def show(name=PAGE, place="", **options):
        browser.open(folder / name, place, **options)
        return browser

    yield show
    assert browser.problems == []


def keys(browser):
    return browser.js(f"{ROWS}.map((body) => body.dataset.key)")


# --- the index --------------------------------------------------------------------------------------------------------


def test_the_index_leads_to_every_page_and_back(shown, folder):
    found = shown("index.html")
    links = found.js("[...document.querySelectorAll('#table a')].map((a) => a.href)")

    assert len(links) == 6
    found._go(next(link for link in links if link.endswith(PAGE)))
    assert found.js("document.querySelector('h1').textContent").startswith("softmax on nvidia-h200")
    found._go(found.js("document.querySelector('header a').href"))
    assert found.js("location.pathname").endswith("/public/index.html")


def test_a_site_works_below_any_folder(browser, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "group" / "my project")
    browser.open(tmp_path / "group" / "my project" / "index.html")
    link = browser.js("document.querySelector('#table tbody[data-op=matmul] a').href")
    browser._go(link)

    assert "/group/my%20project/nvidia-h200/matmul.html" in browser.js("location.href")
    assert browser.js("document.querySelectorAll('svg.chart').length") > 1
    assert browser.problems == []


def test_the_index_is_sorted_by_numbers(shown):
    found = shown("index.html", "#sort=-worst")
    values = found.js(f"{ROWS}.map((body) => body.querySelectorAll('td.n')[2].dataset.n ?? null)")
    known = [float(value) for value in values if value is not None]

    assert keys(found)[0] == PAGE
    assert known == sorted(known, reverse=True)
    assert values[len(known) :] == [None] * 2


def test_the_index_is_filtered_by_device_state_and_words(shown):
    assert keys(shown("index.html", "#device=ascend-910b")) == ["ascend-910b/softmax.html"]
    assert keys(shown("index.html", "#state=slower")) == [PAGE]
    assert keys(shown("index.html", "#state=damaged,slower")) == ["nvidia-h200/broken.html", PAGE]
    assert keys(shown("index.html", "#q=matm%20h200")) == ["nvidia-h200/matmul.html"]
    assert keys(shown("index.html", "#q=nosuchop")) == []
    for nothing in ("#device=nothing&state=nothing&sort=nothing", "#what"):
        assert len(keys(shown("index.html", nothing))) == 6


def test_the_device_is_chosen_from_a_list(shown):
    found = shown("index.html")
    found.js("document.getElementById('op').value = 'ascend-910b'")
    found.js("document.getElementById('op').dispatchEvent(new Event('change'))")

    assert keys(found) == ["ascend-910b/softmax.html"]
    assert found.js("location.hash") == "#device=ascend-910b"
    assert found.js("document.getElementById('count').textContent") == "1 of 6 rows"


def test_the_index_says_what_is_damaged(shown):
    found = shown("index.html")
    text = found.js("document.querySelector('tbody[data-state=damaged]').textContent")

    assert "baselines/nvidia-h200/broken.history.jsonl, line 1, is damaged" in text


# --- an op ------------------------------------------------------------------------------------------------------------


def test_the_worst_case_stands_open_and_the_address_stays_clean(shown):
    found = shown()

    assert found.js(f"{OPEN}.dataset.key") == "rows=4096,cols=32768,dtype=float16"
    assert found.js(f"{OPEN}.querySelectorAll('svg.chart').length") == 3
    assert found.js("location.hash") == ""


def test_a_packed_case_looks_as_one_that_is_written_into_the_page(shown, folder, histories, browser, monkeypatch):
    from perfci.report.site import pages

    drawn = []
    for served in (0, 1):
        monkeypatch.setattr(pages, "SERVED", served)
        root = folder.parent
        site.build(root / "baselines", root / "thresholds", root, folder.parent / f"served{served}")
        browser.open(folder.parent / f"served{served}" / PAGE)
        drawn.append(browser.js(
            f"[...{OPEN}.querySelectorAll('.detail, .detail *')].map((one) => one.tagName + ' ' + "
            "[...one.attributes].map((a) => a.name + '=' + a.value).sort().join(' ') + "
            "(one.children.length ? '' : one.textContent.trim()))"
        ))  # fmt: skip
    packed, written = ([re.sub(r"-?\d+(\.\d+)?", "N", text) for text in each] for each in drawn)

    assert len(packed) > 900
    assert packed == written
    cells = [re.findall(r"TD class=n(-?\d+\.\d+)$", "\n".join(each), re.MULTILINE) for each in drawn]
    assert len(cells[0]) > 500
    for one, other in zip(*cells, strict=True):  # the two round halves otherwise
        assert abs(float(one) - float(other)) < 1.01 * 10.0 ** -len(one.partition(".")[2])


def test_arrow_keys_go_from_run_to_run_and_say_its_numbers(shown):
    found = shown()
    found.js(f"{OPEN}.querySelector('svg.chart').focus()")
    tip = f"[...{OPEN}.querySelectorAll('.tip dd')].map((one) => one.textContent)"

    found.key("End")
    assert found.js(tip)[0] == "60"
    for _ in range(19):
        found.key("ArrowLeft")
    run, date, commit, kernel, *_ = found.js(tip)
    assert (run, date) == ("41", "2026-04-11 02:41")
    row = found.js(f"[...{OPEN}.querySelectorAll('.numbers tbody tr')[40].cells].map((one) => one.textContent)")
    assert [run, date, commit, kernel] == row[:4]
    found.key("Home")
    found.key("ArrowLeft")
    assert found.js(tip)[0] == "1"
    assert found.js(f"{OPEN}.querySelector('.tip').getAttribute('role')") == "status"
    found.key("Escape")
    assert found.js("document.querySelectorAll('.tip, .cursor').length") == 0


def test_pointing_at_a_run_says_its_numbers(shown):
    found = shown()
    found.js(f"{OPEN}.querySelector('svg.chart').scrollIntoView()")
    left, top, width, wide = found.js(
        f"(() => {{ const chart = {OPEN}.querySelector('svg.chart'), box = chart.getBoundingClientRect();"
        "return [box.left, box.top, box.width, chart.viewBox.baseVal.width]; })()"
    )
    x = left + (48 + 288 * 25 / 61) / wide * width
    found("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=top + 90)

    assert found.js(f"{OPEN}.querySelector('.tip dd').textContent") == "25"
    assert "B: environment" in found.js(f"{OPEN}.querySelector('.tip').textContent")
    found("Input.dispatchMouseEvent", type="mouseMoved", x=5, y=5)
    assert found.js("document.querySelectorAll('.tip').length") == 0


def test_the_chart_of_all_cases_is_followed_too(shown):
    found = shown()
    found.js("document.querySelector('main > section svg.chart').focus()")
    found.key("Home")

    assert found.js("document.querySelectorAll('.tip dd').length") == 5


def test_everything_can_be_reached_with_the_keyboard(shown):
    found = shown()
    stops = []
    for _ in range(60):
        found.key("Tab")
        stops.append(found.js("(document.activeElement.tagName + ' ' + document.activeElement.textContent.trim())"))
        if "bisect" in stops[-1]:
            break

    assert stops[0] == "A Skip to the cases"
    assert stops[1] == "A All ops and devices"
    assert sum(stop.startswith("svg") for stop in stops) == 4
    assert any(stop.startswith("BUTTON by itself") for stop in stops)
    assert any(stop.startswith("PRE perfci bisect") for stop in stops)


@pytest.mark.parametrize("name", ["index.html", PAGE, "nvidia-h200/once.html", "nvidia-h200/broken.html"])
@pytest.mark.parametrize("width", [360, 768, 1161, 1280])
def test_nothing_is_wider_than_the_screen(shown, name, width):
    found = shown(name, width=width, height=800)
    found.js("document.querySelectorAll('#table .opener, details:not([open]) > summary').forEach((one) => one.click())")

    assert found.js("document.documentElement.scrollWidth") <= width
    out = found.js(
        "[...document.querySelectorAll('main *, header *')].filter((one) => !one.closest('.scroll, svg, pre') && "
        f"one.getBoundingClientRect().right > {width} + 1).map((one) => one.tagName + ' ' + one.className)"
    )
    assert out == []


@pytest.mark.parametrize("width", [360, 1280])
def test_texts_of_charts_overlap_nowhere_and_are_not_cut(shown, width):
    found = shown(width=width, height=800)
    found.js("document.querySelectorAll('#table .opener[aria-expanded=false]').forEach((one) => one.click())")
    clashes = found.js(
        """[...document.querySelectorAll('svg.chart')].flatMap((svg) => {
          const frame = svg.getBoundingClientRect();
          const boxes = [...svg.querySelectorAll('text')].map((one) => [one.textContent, one.getBoundingClientRect()]);
          const out = (box) => box.left < frame.left - 1 || box.right > frame.right + 1;
          const cut = boxes.filter(([, box]) => out(box)).map(([text]) => text);
          const meet = (a, b) =>
            a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 4 && b.top < a.bottom - 4;
          const over = boxes.flatMap(([text, a], index) => boxes.slice(index + 1)
            .filter(([, b]) => meet(a, b))
            .map(([other]) => `${text} / ${other}`));
          return [...cut, ...over];
        })"""
    )

    assert clashes == []


def test_letters_of_charts_can_be_read_on_a_phone(shown):
    found = shown(width=360, height=800)
    heights = found.js(
        "[...document.querySelectorAll('svg.chart text')].map((one) => one.getBoundingClientRect().height)"
    )

    assert min(heights) >= 10


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["index.html", PAGE])
def test_all_texts_stand_out_from_their_ground(shown, name, dark):
    found = shown(name, dark=dark)
    found.js("document.querySelector('svg.chart')?.focus()")
    found.key("Home")
    pairs = found.js(
        """[...document.querySelectorAll('body *')].filter((one) => one.getClientRects().length &&
            [...one.childNodes].some((child) => child.nodeType === 3 && child.data.trim())).map((one) => {
          let under = one;
          const ground = () => getComputedStyle(under).backgroundColor;
          while (under.parentElement && /, 0\\)|transparent/.test(ground())) under = under.parentElement;
          const style = getComputedStyle(one);
          const ink = one.ownerSVGElement ? style.fill : style.color;
          return [one.tagName + '.' + one.getAttribute('class'), ink, ground()];
        })"""
    )

    assert {(name, ink, ground) for name, ink, ground in pairs if contrast(ink, ground) < 4.5} == set()


def contrast(first, second):
    """Of two colours, WCAG 2.2."""

    def luminance(colour):
        parts = [int(part) / 255 for part in re.findall(r"\d+", colour)[:3]]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_paper_shows_every_case(shown):
    found = shown(dark=True)
    before = found.js("location.href")
    found.js("dispatchEvent(new Event('beforeprint'))")
    assert found.js("document.querySelectorAll('tbody.open').length") == 11
    found("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert found.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert found.js("[...document.querySelectorAll('tbody.open svg.chart')].every((one) => one.clientHeight > 80)")
    found("Emulation.setEmulatedMedia", media="")
    found.js("dispatchEvent(new Event('afterprint'))")
    assert found.js("document.querySelectorAll('tbody.open').length") == 1
    assert found.js("location.href").startswith(before)
    assert len(re.findall(rb"/Type\s*/Page\b", found.pdf())) >= 3


def test_without_javascript_the_rows_and_the_worst_case_are_there(shown):
    found = shown(script=False)
    found("Emulation.setScriptExecutionDisabled", value=False)  # scripts of the page stay off, ours may look

    assert len(keys(found)) == 11
    assert found.js("document.querySelectorAll('svg.spark').length") == 11
    assert found.js("document.querySelectorAll('#table button').length") == 0
    found.js("document.querySelectorAll('.more details').forEach((one) => one.open = true)")
    assert found.js("document.querySelector('.more svg.chart').getBoundingClientRect().height") > 200
