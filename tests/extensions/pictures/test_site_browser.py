"""The site in a real browser: links, filters, colours and widths."""

import pytest

from perfci.extensions.history import site
from tests import site_histories as histories
from tests.extensions.pictures import browser as browsers
from tests.extensions.pictures.browser import ROWS, contrast, keys, list_colours

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsers.executable() is None, reason="chromium is not installed here"),
]

PAGE = "nvidia-h200/softmax.html"
PAGES = ["index.html", PAGE]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
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


def test_the_index_leads_to_every_page_and_back(shown):
    page = shown("index.html")
    links = page.js("[...document.querySelectorAll('#table a')].map((a) => a.href)")

    assert len(links) == 6
    page._go(next(link for link in links if link.endswith(PAGE)))
    assert page.js("document.querySelector('h1').textContent").startswith("softmax on nvidia-h200")
    page._go(page.js("document.querySelector('header a').href"))
    assert page.js("location.pathname").endswith("/public/index.html")


def test_the_index_is_sorted_by_numbers(shown):
    page = shown("index.html", "#sort=-worst")
    values = page.js(f"{ROWS}.map((body) => body.querySelectorAll('td.n')[2].dataset.n ?? null)")
    numbers = [float(value) for value in values if value is not None]

    assert numbers == sorted(numbers, reverse=True)
    assert numbers and values[len(numbers) :] == [None] * (len(values) - len(numbers))


def test_the_index_is_filtered_by_device_state_and_words(shown):
    assert keys(shown("index.html", "#device=ascend-910b")) == ["ascend-910b/softmax.html"]
    assert keys(shown("index.html", "#state=damaged,stepped")) == ["nvidia-h200/broken.html", PAGE]
    assert keys(shown("index.html", "#q=matm%20h200")) == ["nvidia-h200/matmul.html"]
    assert len(keys(shown("index.html", "#device=nothing&state=nothing&sort=nothing"))) == 6


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("width", [360, 1161])
def test_nothing_is_wider_than_the_screen(shown, name, width):
    page = shown(name, width=width, height=800)

    assert page.js("document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", PAGES)
def test_all_texts_stand_out_from_their_ground(shown, name, dark):
    pairs = list_colours(shown(name, dark=dark))

    assert {(name, ink, ground) for name, ink, ground in pairs if contrast(ink, ground) < 4.5} == set()
