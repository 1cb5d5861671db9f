"""Packages that import their modules when something of them is asked for."""

import ast
import importlib
import subprocess
import sys

import pytest

from perfci.core.lazy_imports import forwarding
from tests.sources import PACKAGE, trees


def _forwarded(tree):
    """module -> names, as a package's own table says; None where it has no such table."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "forwarding"]
    return {each.arg: sorted(each.value.value.split()) for each in calls[0].keywords} if calls else None


def _shown(tree):
    """The same, as type checkers are shown it."""
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom)]
    return {each.module.rpartition(".")[2]: sorted(alias.name for alias in each.names) for each in imports}


PACKAGES = {
    f"perfci.{path.parent.relative_to(PACKAGE).as_posix().replace('/', '.')}": tree
    for path, tree in trees().items()
    if path.name == "__init__.py" and _forwarded(tree) is not None
}


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_hands_out_what_type_checkers_are_shown(package):
    assert _forwarded(PACKAGES[package]) == _shown(PACKAGES[package])


@pytest.mark.parametrize("package", PACKAGES)
def test_all_that_a_package_names_is_there(package):
    module = importlib.import_module(package)
    modules = {path.stem for path in (PACKAGE / package.partition(".")[2]).glob("*.py")}

    for home, names in _forwarded(PACKAGES[package]).items():
        for name in names:
            assert getattr(module, name) is getattr(importlib.import_module(f"{package}.{home}"), name)
            assert name in module.__all__
            assert name not in modules, "the package would have the module in its place, once that is imported"


def test_a_module_is_imported_when_it_is_asked_for():
    code = (
        "import sys; import perfci.lab.tune as tune; print('perfci.lab.tune.search' in sys.modules); "
        "tune.decide; print('perfci.lab.tune.search' in sys.modules, 'decide' in vars(tune))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "True", "True"]


def test_a_name_that_a_package_has_not_is_an_error_that_says_so():
    forward = forwarding("perfci.lab.tune", search="decide")

    with pytest.raises(AttributeError, match=r"module 'perfci\.lab\.tune' has no attribute 'nonsense'"):
        forward("nonsense")
