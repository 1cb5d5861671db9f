"""Every way in which an op's suites can break the contract once they are imported."""

import sys
from pathlib import Path

import pytest

from perfci.core.errors import ContractError
from perfci.core.wording import sentence
from perfci.worker.contract import check_calls, check_cases
from perfci.worker.load import describe_exception, list_signature, load_op

FILES = {
    "triton": "def {op}(x):\n    return x\n",
    "baseline": ("def {op}(x):\n    return x\n\n\ndef make_inputs(rows, device, seed):\n    return {{'x': rows}}\n"),
    "accuracy": (
        "import perfci\nfrom {op}_baseline import make_inputs, {op} as reference\nfrom {op}_triton import {op}\n"
        "accuracy = perfci.Accuracy({op}, reference, make_inputs, cases=[{{'rows': 1}}])\n"
    ),
    "performance": (
        "import perfci\nfrom {op}_baseline import make_inputs, {op} as reference\nfrom {op}_triton import {op}\n"
        "performance = perfci.Performance({op}, reference, make_inputs, cases=[{{'rows': 1}}, {{'rows': 2}}])\n"
    ),
}


class OpFolder:
    """An op with its name, so that no module of another test is found instead."""

    def __init__(self, root: Path, op: str):
        self.op, self.folder = op, root / op
        self.folder.mkdir()
        for part, text in FILES.items():
            self.path(part).write_text(text.format(op=op))

    def path(self, part):
        return self.folder / f"{self.op}_{part}.py"

    def edit(self, part, before, after):
        text = self.path(part).read_text()
        before = before.format(op=self.op)
        assert before in text
        self.path(part).write_text(text.replace(before, after.format(op=self.op)))

    def load(self):
        return load_op(self.op, self.folder, self.folder.parent)


@pytest.fixture
def op(tmp_path, monkeypatch, request):
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = dict(sys.modules)
    yield OpFolder(tmp_path, f"op{abs(hash(request.node.name))}")
    for name in set(sys.modules) - set(before):
        if name.startswith(("op", "_shared_")):
            del sys.modules[name]


def test_a_sound_op_gives_both_suites(op):
    loaded = op.load()

    assert [case["rows"] for case in loaded.performance.cases] == [1, 2]
    assert loaded.accuracy.kernel(5) == 5


def test_the_import_of_the_kernels_file_is_timed_with_all_that_it_imports_alone(op):
    (op.folder / "helper.py").write_text("import time\ntime.sleep(0.1)\n")
    op.edit("triton", "def {op}(x):", "import time, helper\ntime.sleep(0.1)\n\n\ndef {op}(x):")
    op.edit("baseline", "def make_inputs", "import time\ntime.sleep(0.3)\n\n\ndef make_inputs")

    assert 0.2 <= op.load().import_s < 0.45


FAULTS = {
    "does not import": ("triton", "def {op}(x):", "import no_such_module\n\n\ndef {op}(x):", "import_failed"),
    "raises on import": ("baseline", "def make_inputs", "1 / 0\n\n\ndef make_inputs", "import_failed"),
    "exits on import": ("triton", "def {op}(x):", "raise SystemExit(3)\n\n\ndef {op}(x):", "import_failed"),
    "misses a name": ("accuracy", "make_inputs, {op} as", "make_input, {op} as", "import_failed"),
    "an option that is none": ("accuracy", "cases=", "kases=", "import_failed"),
    "names its suite otherwise": ("accuracy", "accuracy = ", "suite = ", "suite_not_built"),
    "a suite of the other kind": ("performance", "perfci.Performance", "perfci.Accuracy", "suite_not_built"),
    "no cases": ("accuracy", "[{{'rows': 1}}]", "[]", "no_cases"),
    "cases that can be read only once": (
        "accuracy",
        "cases=[{{'rows': 1}}]",
        "cases=iter([{{'rows': 1}}])",
        "suite_broken",
    ),
    "a case that is no mapping": ("performance", "'rows': 2", "2", "suite_broken"),
    "a kernel that is no function": ("accuracy", "Accuracy({op},", "Accuracy(3,", "suite_broken"),
    "a kernel without a signature": ("accuracy", "Accuracy({op},", "Accuracy(min,", "suite_broken"),
    "ranks that are no number": (
        "accuracy",
        "cases=[{{'rows': 1}}]",
        "ranks='two', cases=[{{'rows': 1}}]",
        "ranks_misfit",
    ),
    "another cache": ("performance", "cases=[{{'rows': 1}}", "cache='hot', cases=[{{'rows': 1}}", "cache_misfit"),
    "another argument": ("triton", "def {op}(x)", "def {op}(x, scale=1)", "signatures_differ"),
    "another order": ("triton", "def {op}(x)", "def {op}(y)", "signatures_differ"),
    "make_inputs lacks a parameter": (
        "baseline",
        "(rows, device, seed)",
        "(cols, device, seed)",
        "make_inputs_mismatch",
    ),
    "make_inputs lacks the seed": ("baseline", "(rows, device, seed)", "(rows, device)", "make_inputs_mismatch"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_each_breach_of_the_contract_is_named_with_its_file(op, fault):
    part, before, after, kind = FAULTS[fault]
    op.edit(part, before, after)

    with pytest.raises(ContractError) as caught:
        op.load()

    assert caught.value.reason.kind == kind
    words = sentence(caught.value.reason)
    assert f"{op.op}_" in words and "{" not in words


@pytest.mark.parametrize(
    ("said", "error"),
    [
        ("layouts=('contigous',)", "layouts has 'contigous', which is none of 'contiguous', 'strided'"),
        ("layouts='contiguous'", "layouts is the text 'contiguous', but has to be a tuple"),
        ("values=('normal', 'nann')", "values has 'nann', which is none of 'normal'"),
        ("invariant=('row',)", "invariant has 'row', which is none of 'rows'"),
        ("permutes=('row',)", "permutes has 'row', which is none of 'rows'"),
        ("domain=(1.0, 0.0)", "domain is (1.0, 0.0), but its first number has to be the smaller one"),
        ("tolerance={{'float61': (1e-3, 0.0)}}", "tolerance has 'float61', which is no name of a dtype"),
        ("tolerance={{'float16': (-1.0, 0.0)}}", "tolerance of float16 is (-1.0, 0.0)"),
        ("tolerance={{'float16': (0.0, float('nan'))}}", "tolerance of float16 is (0.0, nan)"),
    ],
)
def test_a_name_by_which_nothing_would_be_checked_is_refused(op, said, error):
    for part in ("accuracy", "performance") if "tolerance" in said else ("accuracy",):
        op.edit(part, "cases=[", f"{said}, cases=[")

        with pytest.raises(ContractError) as caught:
            op.load()

        assert (caught.value.reason.kind, caught.value.reason.facts["file"]) == ("suite_broken", f"{op.op}_{part}.py")
        assert error in sentence(caught.value.reason)
        op.edit(part, f"{said}, cases=[", "cases=[")


def test_an_import_error_names_file_and_line_of_the_op_that_raised(op):
    op.edit("triton", "def {op}(x):", "import os\nraise RuntimeError('no   such\\ndevice')\n\n\ndef {op}(x):")

    with pytest.raises(ContractError) as caught:
        op.load()

    facts = caught.value.reason.facts
    assert (facts["file"], facts["line"]) == (f"{op.op}_triton.py", 2)
    assert (facts["error"], facts["message"]) == ("RuntimeError", "no such device")
    assert facts["suite"] == f"{op.op}_accuracy.py"


# --- earlier names ----------------------------------------------------------------------------------------------------


def renamed(op, text):
    op.edit(
        "performance", "cases=[{{'rows': 1}}, {{'rows': 2}}]", f"cases=[{{{{'rows': 1}}}}, {{{{'rows': 2}}}}], {text}"
    )


def test_a_suite_may_say_what_it_was_called_before(op):
    renamed(op, "renamed={{'rows=1': 'n=1'}}, renamed_from='older'")

    suite = op.load().performance

    assert (suite.renamed, suite.renamed_from) == ({"rows=1": "n=1"}, "older")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("renamed={{'rows=7': 'n=7'}}", "renamed_unknown"),
        ("renamed={{'rows=1': 'rows=2'}}", "renamed_taken"),
        ("renamed={{'rows=1': 'n', 'rows=2': 'n'}}", "renamed_taken"),
        ("renamed=7", "suite_broken"),
        ("renamed={{'rows=1': 3}}", "renamed_taken"),
        ("renamed_from='{op}'", "renamed_from"),
        ("renamed_from='a/b'", "renamed_from"),
        ("renamed_from=3", "renamed_from"),
    ],
)
def test_a_wrong_earlier_name_is_one_clear_sentence(op, text, kind):
    renamed(op, text)

    with pytest.raises(ContractError) as caught:
        op.load()

    assert caught.value.reason.kind == kind
    assert op.path("performance").name in sentence(caught.value.reason)


# --- peers, and storage in low precision ------------------------------------------------------------------------------

PEERS = """
from functools import partial


def other(x, more=None):
    return x


peers = {{"torch.compile": lambda: other, "flash": partial(other, more=2), "builtin": max, "other": other}}
performance = perfci.Performance({op}, reference, make_inputs, cases=[{{'rows': 1}}], peers=peers)
"""
STORED = """
def stored(rows, scaling, device, seed):
    return {{}}


quantised = perfci.Quantised(store=stored, cases=perfci.grid(rows=[1, 2], scaling=["tensor"]))
accuracy = perfci.Accuracy({op}, reference, make_inputs, cases=[{{'rows': 1}}], quantised=quantised)
"""
ADDED = {"performance": PEERS, "accuracy": STORED}


def extended(op, part):
    path = op.path(part)
    path.write_text(path.read_text() + ADDED[part].format(op=op.op))
    return path


def test_sound_peers_are_loaded_in_their_order(op):
    extended(op, "performance")

    assert list(op.load().performance.peers) == ["torch.compile", "flash", "builtin", "other"]


@pytest.mark.parametrize(
    ("part", "before", "after", "kind"),
    [
        ("performance", "peers=peers", "peers=[other]", "suite_broken"),
        ("performance", '"other": other', '"other": 3', "suite_broken"),
        ("performance", '"other": other', '" other": other', "peer_name"),
        ("performance", '"other": other', '"x" * 41: other', "peer_name"),
        ("performance", '"other": other', '"kernel": other', "peer_name"),
        ("performance", "def other(x, more=None)", "def other(y)", "peer_signature"),
        ("accuracy", "quantised = perfci.Quantised(", "quantised = dict(", "suite_broken"),
        ("accuracy", 'scaling=["tensor"]', "scaling=[]", "no_cases"),
        ("accuracy", "rows=[1, 2]", "rows=[1, 1]", "case_twice"),
        ("accuracy", "store=stored, ", "store=stored, mode='how', ", "quantised_mode"),
        ("accuracy", "def stored(rows, scaling", "def stored(scaling", "quantised_mismatch"),
    ],
)
def test_each_breach_by_peers_or_storage_is_named_with_the_file(op, part, before, after, kind):
    path = extended(op, part)
    assert before in path.read_text()
    path.write_text(path.read_text().replace(before, after))

    with pytest.raises(ContractError) as caught:
        op.load()

    assert caught.value.reason.kind == kind
    assert path.name in sentence(caught.value.reason)


def test_a_hundred_thousand_cases_are_counted_once_each():
    """Not once for each other one, which would take minutes."""
    cases = [{"rows": rows} for rows in range(100_000)]

    check_cases(cases, "x_performance.py")
    check_calls(lambda rows, device, seed: {}, cases, "x_performance.py")
    with pytest.raises(ContractError) as caught:
        check_cases([*cases, {"rows": 99_999}], "x_performance.py")

    assert caught.value.reason.facts["case"] == "rows=99999"


def _given(x: Path | None, /, y: int = 2, *, flag=False, **others) -> dict[str, Path]:
    return {}


def test_a_signature_has_all_that_callers_see():
    assert list_signature(_given) == (
        *("x: Path | None", "/", "y: int=2", "*", "flag=False", "**others"),
        "-> dict[str, Path]",
    )


def test_of_a_long_message_the_lines_with_errors_are_told(tmp_path):
    """TileLang shows the whole program before what nvcc says of it."""
    program = "\n".join(f"#include <header_{number}.h>" for number in range(60))
    error = RuntimeError(
        f"{program}\nCompilation error:\n/tmp/x.cu(3): fatal error: cuda.h: No such file\n1 catastrophe"
    )

    told = describe_exception(error, tmp_path)["message"]

    assert told == "Compilation error: /tmp/x.cu(3): fatal error: cuda.h: No such file"
    assert describe_exception(RuntimeError(program), tmp_path)["message"] == " ".join(program.split())[:600]
    assert describe_exception(RuntimeError("one\nerror"), tmp_path)["message"] == "one error"
