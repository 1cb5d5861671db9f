"""Every text of a report goes through the catalogues: with all of them marked, nothing unmarked is left."""

import re

import pytest

from perfci import report
from perfci.core import wording
from perfci.core.model import Verdict
from perfci.extensions.pictures import style

OPEN, SHUT = "\u300c", "\u300d"

NAMES = {
    *map(str, Verdict),
    *("perfci", "Python", "torch", "triton", "runner", "Linux", "NVIDIA", "CUDA", "CPU", "GPU"),  # proper names
    *("attention", "bias_relu", "broadcast", "gelu", "matmul", "softmax", "kernel"),  # ops and arms
    *(
        "with",
        "Triton's",
        "interpreter",
        "no",
        "device",
        "cpu",
        "activity",
    ),  # of devices and timers, as they are stored
    *("float", "bfloat", "sm_", "gfx", "us", "ms", "KiB", "MiB", "GiB", "GB", "TFLOP"),  # dtypes, targets, units
}


class Marked(dict):
    """A catalogue that has every text, between marks."""

    def get(self, key, default=None):
        return f"{OPEN}{key}{SHUT}"


@pytest.fixture
def marked(monkeypatch):
    told = {kind: f"{OPEN}{template}{SHUT}" for kind, template in wording.catalogue().items()}
    monkeypatch.setattr(wording, "catalogue", lambda language="en": told)
    monkeypatch.setattr(wording, "phrases", lambda language: {} if language == "en" else Marked())
    with wording.speaking("zh"):
        yield


def unmarked(text):
    """Words outside of marks, of code, and of names of files."""
    text = re.sub(r"```text\n.*?```", "", text, flags=re.DOTALL)
    text = re.sub(r"(!\[[^\]]*\])\([^)]*\)", r"\1", text)
    while (inner := re.sub(f"{OPEN}[^{OPEN}{SHUT}]*{SHUT}", "", text)) != text:
        text = inner
    text = re.sub(r"`[^`]*`|</?(details|summary)>", "", text)
    return set(re.findall(r"[A-Za-z][A-Za-z_']+", text))


def find_unmarked(examples, folder, name):
    return unmarked(report.write(*getattr(examples, name)(), folder).read_text(encoding="utf-8")) - NAMES


@pytest.mark.parametrize("name", ["full", "duelled"])
def test_no_text_of_a_report_with_pictures_is_outside_of_the_catalogues(examples, marked, tmp_path, pictures, name):
    assert find_unmarked(examples, tmp_path, name) == set()


@pytest.mark.parametrize(
    "name", ["small", "compiled", "first_run", "stopped", "failed_op", "on_cpu", "without_baseline"]
)
def test_no_text_of_a_report_is_outside_of_the_catalogues(examples, marked, tmp_path, name):
    assert find_unmarked(examples, tmp_path, name) == set()


def test_a_report_in_chinese_has_the_same_numbers_and_without_a_font_for_it_the_same_pictures(
    examples, monkeypatch, tmp_path, pictures
):
    monkeypatch.setattr(style, "find_font", lambda: None)
    run, judgements = examples.full()
    english = report.write(run, judgements, tmp_path / "en").read_text(encoding="utf-8")

    with wording.speaking("zh"):
        chinese = report.write(run, judgements, tmp_path / "zh").read_text(encoding="utf-8")

    pictures = [sorted(file.name for file in (tmp_path / name).glob("*.png")) for name in ("en", "zh")]
    assert pictures[0] == pictures[1]
    for name in pictures[0]:
        assert (tmp_path / "en" / name).read_bytes() == (tmp_path / "zh" / name).read_bytes()
    numbers = [sorted(re.findall(r"\d+\.\d+ (?:us|MiB|%)", text)) for text in (english, chinese)]
    assert numbers[0] == numbers[1]
