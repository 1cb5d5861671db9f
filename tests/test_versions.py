"""The versions that perfci is made for are the same everywhere."""

import dataclasses
import re
import tomllib
from pathlib import Path

import pytest

from perfci.core.wording import sentence
from perfci.extensions.doctor.machine import DECLARED, Level, examine
from tests.extensions.doctor.test_doctor import HEALTHY, packages

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DOCUMENT = (ROOT / "docs" / "versions.md").read_text(encoding="utf-8")
EXTRAS = PROJECT["optional-dependencies"]


def span(name: str) -> list[tuple[int, int]]:
    """Every release from the first to the last; Python, torch and Triton count their minor number on."""
    (major, first), (_, last) = DECLARED[name]
    return [(major, minor) for minor in range(first, last + 1)]


def undeclared(**changes: object) -> list[str]:
    findings = examine(dataclasses.replace(HEALTHY, **changes))
    return [sentence(finding.reason) for finding in findings if finding.reason.kind == "doctor_version_undeclared"]


def test_the_project_asks_for_the_first_python_and_names_every_one():
    (major, first), _ = DECLARED["Python"]

    assert PROJECT["requires-python"] == f">={major}.{first}"
    named = [text.rsplit(" ", 1)[1] for text in PROJECT["classifiers"] if "Python :: 3." in text]
    assert named == [f"{major}.{minor}" for major, minor in span("Python")]


def test_the_cpu_extra_stays_within_what_is_declared():
    torch, triton = EXTRAS["cpu"]
    (_, low), (_, high) = DECLARED["torch"]

    assert torch == f"torch>=2.{low},<2.{high + 1}"
    assert triton.split(";")[0] == f"triton>=3.7,<3.{DECLARED['Triton'][1][1] + 1}"


def test_torch_and_triton_are_never_forced_on_a_machine_with_a_device():
    needs = [*PROJECT["dependencies"], *EXTRAS["cuda"], *EXTRAS["dev"]]

    assert not [need for need in needs if re.match(r"torch\b|triton\b", need)]


def test_the_pinned_cpu_set_is_declared():
    pins = dict(
        re.findall(r"^(torch|triton)==(\d+\.\d+)", (ROOT / "requirements" / "cpu.txt").read_text(), re.MULTILINE)
    )

    assert tuple(map(int, pins["torch"].split("."))) in span("torch")
    assert tuple(map(int, pins["triton"].split("."))) in span("Triton")


def test_the_document_declares_the_same():
    for name, (first, last) in DECLARED.items():
        assert "{} {}.{} to {}.{}".format(name, *first, *last) in DOCUMENT


def test_every_row_of_the_document_names_its_versions_date_and_counts():
    rows = [line for line in DOCUMENT.splitlines() if re.match(r"\| 3\.\d+", line)]

    assert len(rows) >= 6
    assert {DECLARED["torch"][1], DECLARED["Triton"][1]} <= {
        tuple(map(int, cell.split(".")[:2])) for row in rows for cell in row.split("|")[2:4]
    }, "what pip installs today was tried"
    for row in rows:
        python, torch, triton, numpy, device, tests, checks, date = (cell.strip() for cell in row.strip("|").split("|"))
        assert tuple(map(int, python.split(".")[:2])) in span("Python")
        assert tuple(map(int, torch.split(".")[:2])) in span("torch")
        assert tuple(map(int, triton.split(".")[:2])) in span("Triton")
        assert numpy and device and checks
        assert date == "not run" or (
            re.fullmatch(r"\d{4}-\d\d-\d\d", date) and re.match(r"\d+ passed, 0 failed", tests)
        )


def test_inside_the_range_doctor_says_nothing():
    assert undeclared() == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"python": "3.14.0"}, "Python 3.14.0"),
        ({"packages": packages(torch="2.5.1")}, "torch 2.5.1"),
        ({"packages": packages(torch="2.16.0+cu132")}, "torch 2.16.0+cu132"),
        ({"packages": packages(triton="3.1.0")}, "Triton 3.1.0"),
        ({"packages": packages(triton="3.10.0")}, "Triton 3.10.0"),
    ],
)
def test_outside_of_it_doctor_says_so_with_the_range(changes, said):
    (text,) = undeclared(**changes)

    assert text.startswith(said) and " to " in text and "docs/versions.md" in text


def test_it_is_worth_knowing_and_no_problem():
    (finding,) = [it for it in examine(dataclasses.replace(HEALTHY, python="3.14.0")) if it.level is not Level.OK]

    assert finding.level is Level.NOTE
