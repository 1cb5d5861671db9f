"""Two revisions of one op in one process: each runs its code, and nothing else notices."""

import importlib
import importlib.util
import itertools
import subprocess
import sys
import textwrap

import pytest

from perfci.core.errors import ContractError
from perfci.measure.bench import InseparableError
from perfci.worker.apart import forget, forget_others, load_apart
from perfci.worker.load import load_op
from tests.worker.revisions import two

_numbers = itertools.count()


@pytest.fixture
def revisions(tmp_path, monkeypatch):
    """Head and base of an op that no other test has a module of, head's imported."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    head, base = two(tmp_path, f"apart{next(_numbers)}")
    yield head, base
    for root in (head.root, base.root):
        forget(root)


def load(revision):
    return load_op(revision.op, revision.folder, revision.kernels).performance.kernel


def load_beside(head, base):
    return load_apart(base.op, base.folder, base.kernels, base.root, head.root).performance.kernel


def test_each_revision_runs_its_own_code_helpers_included_and_when_called_later(revisions):
    head, base = revisions
    ours, theirs = load(head), load_beside(head, base)

    assert [ours(1), theirs(1), ours(2), theirs(2)] == [3210, 321, 3220, 322]


def test_folders_of_the_project_on_the_search_path_are_the_bases(revisions, tmp_path):
    head, base = revisions
    name = f"{head.op}_tools"
    for revision, value in ((head, 7), (base, 5)):
        package = revision.root / "src" / name
        package.mkdir(parents=True)
        (package / "__init__.py").write_text("")
        (package / "inner.py").write_text(f"VALUE = {value}\n")
        revision.edit("triton", "from _", f"from {name} import inner\nfrom _")
        revision.edit("triton", "return x", "return inner.VALUE * 10_000 + x")
    link = tmp_path / "by another name"
    link.symlink_to(head.root)
    sys.path.insert(0, str(link / "src"))

    ours, theirs = load(head), load_beside(head, base)

    assert [ours(1), theirs(1)] == [73210, 50321]


def test_an_editable_installation_of_the_work_tree_makes_the_revisions_inseparable(revisions):
    head, base = revisions
    name = f"{head.op}_tools"
    (head.root / "lib").mkdir()
    (head.root / "lib" / f"{name}.py").write_text("VALUE = 7\n")
    sys.meta_path.insert(0, Editable({name: head.root / "lib" / f"{name}.py"}))
    for revision in (head, base):
        revision.edit("triton", "from _", f"import {name}\nfrom _")
    load(head)
    before = dict(sys.modules)

    with pytest.raises(InseparableError) as caught:
        load_beside(head, base)

    assert caught.value.reason.kind == "imports_other_code"
    assert caught.value.reason.facts == {"module": name, "file": str(head.root / "lib" / f"{name}.py")}
    assert sys.modules == before


def test_a_base_that_does_not_import_is_a_breach_of_the_contract_and_heads_modules_are_put_back(revisions):
    head, base = revisions
    base.edit("triton", "def ", "raise RuntimeError('no libdevice')\n\n\ndef ")
    ours = load(head)
    modules, path = dict(sys.modules), list(sys.path)

    with pytest.raises(ContractError) as caught:
        load_beside(head, base)

    assert (caught.value.reason.kind, caught.value.reason.facts["message"]) == ("import_failed", "no libdevice")
    assert (sys.modules, sys.path) == (modules, path)
    assert ours(1) == 3210


class Editable:
    """What an editable installation puts into sys.meta_path."""

    def __init__(self, files):
        self.files = files

    def find_spec(self, name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, self.files[name]) if name in self.files else None


# --- a process of the base's own --------------------------------------------------------------------------------------


def in_a_process(code, *arguments):
    """Run a script that settles for the base, since that cannot be taken back."""
    script = (
        "import sys, importlib.util\nfrom pathlib import Path\nfrom perfci.worker.apart import settle, stray_import\n"
    )
    done = subprocess.run(
        [sys.executable, "-B", "-c", script + textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


EDITABLE = """
    class Editable:
        def find_spec(self, name, path=None, target=None):
            place = head / "lib" / f"{name}.py"
            if place.is_file():
                return importlib.util.spec_from_file_location(name, place)
            package = head / "lib" / name
            if package.is_dir():
                return importlib.util.spec_from_file_location(
                    name, package / "__init__.py", submodule_search_locations=[str(package)]
                )
    root, head = map(Path, sys.argv[1:])
    sys.path.insert(0, str(head / "src"))
    sys.meta_path.insert(0, Editable())
    settle(root, head)
"""


@pytest.fixture
def trees(tmp_path):
    """Base and head, with modules that an editable installation and the search path lead to."""
    for name, value in (("base", 1), ("head", 2)):
        for folder in ("lib/package", "src"):
            (tmp_path / name / folder).mkdir(parents=True)
        (tmp_path / name / "lib" / "tools.py").write_text(f"VALUE = {value}\n")
        (tmp_path / name / "lib" / "package" / "__init__.py").write_text(f"VALUE = {value}0\n")
        (tmp_path / name / "lib" / "package" / "inner.py").write_text(f"VALUE = {value}00\n")
        (tmp_path / name / "src" / "plain.py").write_text(
            f"def late():\n    import tools\n    return {value}000 + tools.VALUE\n"
        )
    (tmp_path / "head" / "lib" / "only_here.py").write_text("VALUE = 3\n")
    return tmp_path / "base", tmp_path / "head"


def test_whatever_leads_to_heads_files_leads_to_the_bases(trees):
    code = """
        import plain, tools, package.inner
        print(plain.late(), tools.VALUE, package.VALUE, package.inner.VALUE, stray_import(head))
    """

    assert in_a_process(EDITABLE + textwrap.indent(textwrap.dedent(code), "    "), *trees) == [
        "1001",
        "1",
        "10",
        "100",
        "None",
    ]


# --- torch operators --------------------------------------------------------------------------------------------------

OPERATORS = """
    import torch
    from perfci.device.cpu import CpuDevice
    from perfci.measure.bench import InseparableError
    from perfci.core.model import DuelWhat
    from perfci.worker.work import load_base
    from perfci.worker.load import load_op
    from perfci.ops.identity import DuelPlan
    from perfci.worker.tasks import BaseFiles, Measure, Opening, OpFiles, Place

    head, base = map(Path, sys.argv[1:3])
    op = sys.argv[3]
    device = CpuDevice()
    before = device.list_namespaces()
    ours = load_op(op, head / "kernels" / op, head / "kernels").performance.kernel
    files = BaseFiles(op, base / "kernels" / op, base / "kernels", base, DuelPlan(("rows=1",)))
    place = Place((OpFiles(op, head / "kernels" / op),), head / "kernels", head)
    task = Measure(place=place, opening=Opening("cpu", 1), base=files)
"""


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.nightly  # tests/flow/test_against.py has such revisions in a whole check
def test_a_revision_that_registers_torch_operators_is_refused_before_the_other_runs_its_code(tmp_path):
    head, base = with_operators(tmp_path)
    refused = """
        found = load_base(task, device, before)  # nothing is timed here, so that head is judged by its suites
        print(found.op, found.note.kind, found.note.facts["namespace"])
        device.absent = None
        try:
            load_base(task, device, before)
        except InseparableError as error:
            print(error.reason.kind, error.reason.facts["namespace"])
        print(ours(torch.ones(1)).item())
    """

    told = in_a_process(OPERATORS + textwrap.indent(textwrap.dedent(refused), "    "), head.root, base.root, head.op)

    assert told == ["None", "judged_by_own", "perfci_apart", "registers_operators", "perfci_apart", "10.0"]


def with_operators(tmp_path):
    head, base = two(tmp_path, "registered")
    for revision in (head, base):
        (revision.folder / "registered_triton.py").write_text(
            "import torch\nfrom registered_helper import FACTOR\n\n\n"
            "@torch.library.custom_op('perfci_apart::scale', mutates_args=())\n"
            "def _scale(x: torch.Tensor) -> torch.Tensor:\n    return x * FACTOR\n\n\n"
            "def registered(x):\n    return torch.ops.perfci_apart.scale(x)\n"
        )
    return head, base


def test_what_the_next_op_would_find_elsewhere_is_forgotten_and_what_both_share_stays(tmp_path, monkeypatch):
    kernels = tmp_path / "kernels"
    for name in ("_all.py", "a/_group.py", "a/x/_own.py", "a/y/_near.py", "a/_near.py", "a/_tools/__init__.py"):
        path = kernels / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    monkeypatch.setattr(sys, "path", [str(kernels / "a" / "x"), str(kernels / "a"), str(kernels), *sys.path])
    names = {name: importlib.import_module(name) for name in ("_all", "_group", "_own", "_near", "_tools")}

    forget_others(kernels / "a" / "y", kernels)
    kept = {name for name, module in names.items() if sys.modules.get(name) is module}
    forget(kernels)

    assert kept == {"_all", "_group", "_tools"}
