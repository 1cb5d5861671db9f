"""The site in a real browser: links, filters, keys, trends followed run by run, on a desk, on a phone and on paper."""

import importlib.util
import re
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
    site.build(root / "baselines", root, root / "public")
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


def test_the_index_is_sorted_by_numbers(shown):
    found = shown("index.html", "#sort=-worst")
    values = found.js(f"{ROWS}.map((body) => body.querySelectorAll('td.n')[2].dataset.n ?? null)")
    known = [float(value) for value in values if value is not None]

    assert known == sorted(known, reverse=True)
    assert known and values == [*map(str, values[: len(known)]), *[None] * (len(values) - len(known))]


def test_the_index_is_filtered_by_device_state_and_words(shown):
    assert keys(shown("index.html", "#device=ascend-910b")) == ["ascend-910b/softmax.html"]
    assert keys(shown("index.html", "#state=stepped")) == [PAGE]
    assert keys(shown("index.html", "#state=damaged,stepped")) == ["nvidia-h200/broken.html", PAGE]
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


@pytest.mark.parametrize("name", ["index.html", PAGE, "nvidia-h200/once.html", "nvidia-h200/broken.html"])
@pytest.mark.parametrize("width", [360, 768, 1161, 1280])
def test_nothing_is_wider_than_the_screen(shown, name, width):
    found = shown(name, width=width, height=800)
    found.js("document.querySelectorAll('#table .opener, details:not([open]) > summary').forEach((one) => one.click())")

    assert found.js("document.documentElement.scrollWidth") <= width
    out = found.js(
        "[...document.querySelectorAll('main *, header *')].filter((one) => !one.closest('.scroll, pre') && "
        f"one.getBoundingClientRect().right > {width} + 1).map((one) => one.tagName + ' ' + one.className)"
    )
    assert out == []


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
