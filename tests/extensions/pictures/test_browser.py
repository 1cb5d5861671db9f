"""The page in a real browser: its order, its filters, its keys, its charts, on a desk, on a phone and on paper."""

import io
import re

import pytest
from PIL import Image

from tests.extensions.pictures import browser as browsers
from tests.extensions.pictures.browser import ROWS, contrast, keys, list_colours

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(browsers.executable() is None, reason="chromium is not installed here"),
]

SLOW = "softmax/rows=4096,cols=1024,dtype=float16"


@pytest.fixture
def shown(browser, page):
    """An example's page in the browser, which may complain about nothing."""

    def show(name, place="", **options):
        browser.open(page(name).path, place, **options)
        return browser

    yield show
    assert browser.problems == []


@pytest.mark.parametrize(("sort", "numbers"), [("-change", sorted), ("speedup", sorted)])
def test_the_address_sorts_by_a_column_of_numbers_and_what_has_none_comes_last(shown, sort, numbers):
    page = shown("full", f"#sort={sort}")
    column = sort.strip("-")
    place = page.js(
        f"[...document.querySelectorAll('#table > thead th')].findIndex((th) => th.dataset.sort === '{column}')"
    )
    values = page.js(f"{ROWS}.map((body) => body.rows[0].cells[{place}].dataset.n ?? null)")

    known = [float(value) for value in values if value is not None]
    assert known == numbers(known, reverse=sort.startswith("-"))
    assert values[len(known) :] == [None] * (len(values) - len(known))
    assert len(known) > 5
    sorts = page.js("[...document.querySelectorAll('#table [aria-sort]')].map((th) => [th.dataset.sort, th.ariaSort])")
    assert sorts == [[column, "descending" if sort.startswith("-") else "ascending"]]


def test_the_address_filters_by_verdict_op_and_text(shown):
    assert keys(shown("full", "#verdict=REGRESSED")) == [SLOW]
    assert {key.split("/")[0] for key in keys(shown("full", "#op=broadcast"))} == {"broadcast"}
    assert len(keys(shown("full", "#verdict=WRONG,TOO_SLOW"))) == 3
    assert keys(shown("full", "#q=FLOAT16%20cols%3D1024%20softmax")) == [SLOW, SLOW.replace("float", "bfloat")]
    assert keys(shown("full", "#q=nosuchcase")) == []


def test_typing_filters_and_is_remembered_in_the_address(shown):
    page = shown("full")
    page.js("document.getElementById('find').focus()")
    page.write("bias_relu")

    assert keys(page) == ["bias_relu/whole op"]
    assert page.js("location.hash") == "#q=bias_relu"
    assert page.js("document.getElementById('count').textContent") == "1 of 25 rows"
    page.js("document.getElementById('clear').click()")
    assert len(keys(page)) == 25
    assert page.js("location.hash") == ""


def focused(browser):
    return browser.js("(document.activeElement.className + ' ' + document.activeElement.textContent).trim()")


def test_everything_can_be_done_with_the_keyboard(shown):
    page = shown("full")
    stops = []
    for _ in range(60):
        page.key("Tab")
        stops.append(focused(page))
        if stops[-1].startswith("opener"):
            break
    assert stops[0] == "skip Skip to the cases"
    assert "chip fails REGRESSED 1" in stops
    assert stops.index("reason") > stops.index("verdict") > stops.index("chip ok PASS 14")
    assert page.js("getComputedStyle(document.activeElement).outlineStyle") != "none"

    for key, expected in (("Enter", "true"), (" ", "false"), (" ", "true")):
        page.key(key)
        assert page.js("document.activeElement.ariaExpanded") == expected
    assert page.js("document.activeElement.closest('tbody').querySelector('.more').getClientRects().length") > 0


def test_without_javascript_it_is_a_plain_table_with_the_pictures_of_what_fails(shown):
    page = shown("full", script=False)
    page("Emulation.setScriptExecutionDisabled", value=False)  # scripts of the page stay off, ours may look

    assert len(keys(page)) == 25
    assert page.js("document.getElementById('filters').getClientRects().length") == 0
    assert page.js("document.querySelectorAll('#table button').length") == 0
    page.js("document.querySelectorAll('#table > tbody.fails .more > td > details').forEach((one) => one.open = true)")
    assert page.js(f"document.querySelector('tbody[data-key=\"{SLOW}\"] img').getBoundingClientRect().height") > 200


@pytest.mark.parametrize("name", ["duelled", "hostile", "long_names", "compiled"])
@pytest.mark.parametrize("width", [360, 1161])
def test_nothing_is_wider_than_the_screen(shown, name, width):
    page = shown(name, width=width, height=800)
    page.js("document.querySelectorAll('#table .opener, details:not([open]) > summary').forEach((one) => one.click())")

    assert page.js("document.documentElement.scrollWidth") <= width
    out = page.js(
        "[...document.querySelectorAll('main *')].filter((one) => !one.closest('.scroll, svg, pre') && "
        f"one.getBoundingClientRect().right > {width} + 1).map((one) => one.tagName + ' ' + one.className)"
    )
    assert out == []


@pytest.mark.parametrize("name", ["duelled", "full", "compiled"])
def test_on_a_phone_no_table_is_cut(shown, name):
    page = shown(name, width=390, height=844)
    page.js("document.querySelectorAll('#table .opener, details:not([open]) > summary').forEach((one) => one.click())")

    cut = "[...document.querySelectorAll('div.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1).length"
    assert page.js(cut) == 0


@pytest.mark.parametrize("dark", [False, True])
def test_all_texts_stand_out_from_their_ground(shown, dark):
    page = shown("duelled", f"#open={SLOW}", dark=dark)
    pairs = list_colours(page)

    weak = {(name, ink, ground) for name, ink, ground in pairs if contrast(ink, ground) < 4.5}
    assert weak == set()


def test_the_toggle_turns_light_to_dark_and_lasts_for_the_session(shown, page):
    opened = shown("small")
    assert corner(opened) == (255, 255, 255)
    opened.js("document.getElementById('theme').click()")
    assert max(corner(opened)) < 60
    assert opened.js("document.getElementById('theme').textContent") == "Light"


def corner(browser):
    with Image.open(io.BytesIO(browser.screenshot())) as image:
        return image.convert("RGB").getpixel((3, 3))


def test_it_is_printed_light_and_opened(shown):
    page = shown("duelled", dark=True)
    text = page.pdf()

    pages = len(re.findall(rb"/Type\s*/Page\b", text))
    assert pages >= 5
    page("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    assert page.js("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.js("document.getElementById('filters').getClientRects().length") == 0
    page.js("dispatchEvent(new Event('beforeprint'))")
    assert page.js(f"document.querySelector('tbody[data-key=\"{SLOW}\"] img').getBoundingClientRect().height") > 100
    assert page.js("[...document.querySelectorAll('details.op')].every((one) => one.open)")
    page.js("dispatchEvent(new Event('afterprint'))")
    assert not page.js("document.querySelector('details.op[data-op=broadcast]')?.open ?? false")
    page("Emulation.setEmulatedMedia", media="")
