"""The project's rules, checked in the source: packages have homes, only cli prints, each reason has its sentence.

Which room may import which is in pyproject.toml, as contracts of import-linter.
"""

import ast
import functools
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import perfci
from perfci.core.wording import catalogue
from tests.sources import trees, walk

ROOT = Path(perfci.__file__).parent

HOMES = {
    "click": ("cli",),
    "rich": ("cli",),
    "typer": ("cli",),
    "cuda": ("extensions.offline.backends.cutedsl",),
    "duckdb": ("extensions.history.database",),
    "psycopg": ("extensions.history.database",),
    "jinja2": ("report.markdown",),
    "markupsafe": ("report.markdown", "extensions.pictures.page"),
    "matplotlib": ("extensions.pictures", "extensions.history.charts"),
    "PIL": ("extensions.pictures.style",),  # a part of matplotlib, as it were: it writes the PNGs
    # Messages between processes, and files: their faults need places; bounds mark the records' fields.
    "msgspec": (
        "core.codec",
        "core.settings",
        "store",
        "core.model.basics",
        "extensions.agents.logbook",
        "extensions.common.history",
    ),
    "mcp": ("extensions.agents.server",),
    "pandas": ("extensions.history.tables",),
    "pyarrow": ("extensions.history.tables",),
    "pynvml": ("device.nvml",),
    "scipy": (
        "statistics.exact",
        "extensions.lab.soak.verdicts",
        "extensions.history.ratchet.prediction",
        "extensions.workloads.cases",
    ),
    "ray": ("extensions.ray.cluster",),
    "torch": (
        "device",
        "extensions.npu",
        "extensions.adopt.rehearsal",
        "extensions.interpreter",
        "extensions.offline",
        "extensions.driver.shared_memory",
        "extensions.driver.steps",
        "extensions.agents.profile_task",
        "extensions.lab.soak.subject",
        "extensions.beyond",
        "extensions.workloads",
        "extensions.ranks.rank",
        "extensions.ranks.stand_in",
        "extensions.ranks.timing",
        "extensions.ranks.work",
    ),
    "triton": (
        "device",
        "extensions.npu",
        "extensions.ranks.timing",
        "extensions.interpreter",
        "extensions.offline",
        "extensions.adopt.rehearsal",
        "extensions.static.dry_launch",
        "extensions.beyond.configurations",
        "extensions.beyond.sanitize",
    ),
    "yaml": (
        "thresholds",
        "core.wording",
        "extensions.setup.hosts",
    ),  # the files that people write by hand
    "numpy": ("",),  # arrays are everywhere's language
}

SPEAKERS = ("cli", "core.stopping", "worker.child", "worker.confine", "worker.forks")
"""The command line, how a signal ends it, and programs of their own, which may end and print nothing."""
TO_SPEAK = {"print", "input", "exit", "quit", "sys.exit", "os._exit", "sys.stdout.write", "sys.stderr.write"}
HEAVY = ("torch", "triton", "scipy", "pandas", "matplotlib", "jinja2", "ray", "duckdb", "psycopg")


@functools.cache
def modules() -> dict[str, ast.Module]:
    """Every module by its name below perfci. Parsed by the process that runs these tests, not by all that collect."""
    return {_name(path): tree for path, tree in trees().items()}


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "perfci"


def imports(tree: ast.Module) -> Iterator[str]:
    """Dotted names that a module imports when it runs, without those for the type checker only."""
    nodes = list(walk(tree))
    skipped = {id(inner) for node in nodes if _for_types_only(node) for inner in walk(node)}
    for node in nodes:
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _for_types_only(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def within(module: str, homes: tuple[str, ...]) -> bool:
    # An extension's commands are command line, wherever its folder is.
    module = re.sub(r"^extensions\.\w+\.commands\b", "cli", module)
    return any(home == "" or f"{module}.".startswith(f"{home}.") for home in homes)


def test_each_package_is_imported_at_home_only():
    used = {(name.split(".")[0], module) for module, tree in modules().items() for name in imports(tree)}
    used = {(package, module) for package, module in used if package not in {"perfci", *sys.stdlib_module_names}}

    assert {package for package, _ in used} <= HOMES.keys(), "give the new package one home"
    assert [(package, module) for package, module in sorted(used) if not within(module, HOMES[package])] == []


def test_only_the_command_line_prints_and_exits():
    spoken = []
    for module in (name for name in modules() if not within(name, SPEAKERS)):
        nodes = list(walk(modules()[module]))
        names = {_dotted(node.func) for node in nodes if isinstance(node, ast.Call)}
        raised = {_dotted(node.exc) for node in nodes if isinstance(node, ast.Raise) and node.exc}
        spoken += [(module, name) for name in (names & TO_SPEAK) | ((names | raised) & {"SystemExit"})]

    assert spoken == []


def _dotted(node: ast.expr) -> str:
    return ast.unparse(node.func if isinstance(node, ast.Call) else node)


def test_the_command_line_starts_without_heavy_packages():
    code = f"import sys, perfci.cli; print([name for name in {HEAVY} if name in sys.modules])"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# --- every reason has its sentence, and every sentence its facts ------------------------------------------------------


@functools.cache
def makers() -> set[str]:
    """Reason, and every error."""
    return {"Reason"} | {node.name for node in modules()["core.errors"].body if isinstance(node, ast.ClassDef)}


def _called(node: ast.Call) -> str:
    return _dotted(node.func).split(".")[-1]


def forwarders(tree: ast.Module) -> dict[str, int]:
    """Functions that hand one of their own parameters on as a reason's kind, and which one: _problem(kind, **facts)."""
    lengths = {}
    for function in (node for node in walk(tree) if isinstance(node, ast.FunctionDef)):
        names = [argument.arg for argument in function.args.args if argument.arg not in {"self", "cls"}]
        for call in (node for node in walk(function) if isinstance(node, ast.Call) and node.args):
            first = call.args[0]
            if _called(call) in makers() and isinstance(first, ast.Name) and first.id in names:
                lengths[function.name] = names.index(first.id)
    return lengths


@functools.cache
def reasons() -> list[tuple[str, str, ast.Call, bool]]:
    """(module, kind, call, whether the call itself makes the reason) wherever a kind is written out."""
    unused = []
    for module, tree in modules().items():
        positions = forwarders(tree) | dict.fromkeys(makers(), 0)
        for call in (node for node in walk(tree) if isinstance(node, ast.Call)):
            position = positions.get(_called(call))
            if position is not None and position < len(call.args):
                for kind in _texts(call.args[position]):
                    unused.append((module, kind, call, _called(call) in makers()))
    return unused


def _texts(node: ast.expr) -> list[str]:
    """The text, or both if a condition chooses."""
    if isinstance(node, ast.IfExp):
        return _texts(node.body) + _texts(node.orelse)
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def given(call: ast.Call) -> set[str] | None:
    """Names of the facts that a call gives, if they are written out; None if they come from elsewhere."""
    if len(call.args) > 2 or any(keyword.arg is None for keyword in call.keywords):
        return None
    names = {keyword.arg for keyword in call.keywords if keyword.arg != "facts"}
    table = call.args[1] if len(call.args) == 2 else next((k.value for k in call.keywords if k.arg == "facts"), None)
    if table is None:
        return names
    if not isinstance(table, ast.Dict) or not all(isinstance(key, ast.Constant) for key in table.keys):
        return None
    return names | {key.value for key in table.keys}


def test_every_reason_has_a_sentence():
    missing = sorted({f"{kind} ({module})" for module, kind, _, _ in reasons() if kind not in catalogue()})

    assert not missing


def test_the_gate_has_its_sentences_without_its_extensions():
    text = (ROOT / "core/wording/en.yaml").read_text(encoding="utf-8")
    sentences = {line.partition(":")[0] for line in text.splitlines()}
    kinds = {kind for module, kind, _, _ in reasons() if not module.startswith("extensions.")}

    assert sorted(kinds - sentences) == []


def test_every_sentence_is_given_its_facts():
    short = []
    for module, kind, call, direct in reasons():
        names = given(call) if direct else None
        if names is not None and kind in catalogue() and (lacking := _fields(catalogue()[kind]) - names):
            short.append(f"{kind} ({module}): {sorted(lacking)}")

    assert not short


def test_no_sentence_is_left_over():
    nodes = [node for tree in modules().values() for node in walk(tree)]
    written = {node.value for node in nodes if isinstance(node, ast.Constant)}
    beginnings = tuple(_texts(node.values[0])[0] for node in nodes if isinstance(node, ast.JoinedStr) and _begins(node))

    assert sorted(kind for kind in catalogue().keys() - written if not kind.startswith(beginnings)) == []


def _begins(node: ast.JoinedStr) -> bool:
    """A kind put together from its beginning and a name: f"wrong_{what}"."""
    return any(text.isidentifier() and text.endswith("_") for text in _texts(node.values[0]))


def _fields(template: str) -> set[str]:
    from string import Formatter

    return {name for _, name, _, _ in Formatter().parse(template) if name}


def test_what_scripts_import_of_perfci_exists():
    """Most import inside their functions, which types are not checked in."""
    missing = []
    for script in sorted(path for name in ("benchmarks", "examples") for path in (ROOT.parent / name).rglob("*.py")):
        for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("perfci"):
                module = importlib.import_module(str(node.module))
                names = [alias.name for alias in node.names if not hasattr(module, alias.name)]
                parts = [name for name in names if not importlib.util.find_spec(f"{node.module}.{name}")]
                missing += [f"{script.name}: {node.module}.{name}" for name in parts]
    assert not missing


RUNS_CODE = {"eval", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "np.load", "torch.load"}
CALLS_SKETCHES = {
    "extensions.adopt.rehearsal.axes",
    "extensions.adopt.rehearsal.dry_torch",
    "extensions.lab.tune.files",
}
"""`perfci new` calls the functions of a sketch with expressions of perfci's own making. They read no results. A rule of
a search is a sum or a comparison: its syntax is checked before."""


def test_results_are_read_by_no_module_that_could_run_them():
    """Neither pickle nor its like is imported anywhere, and YAML is looked at, never constructed from foreign files."""
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib"}
    for name, tree in modules().items():
        nodes = walk(tree)
        imported = {alias.name.split(".")[0] for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {(node.module or "").split(".")[0] for node in nodes if isinstance(node, ast.ImportFrom)}
        plain = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, _NAMES)]
        called = {ast.unparse(func) for func in plain if getattr(func, "id", getattr(func, "attr", "")) in _LAST}
        assert imported.isdisjoint(forbidden), name
        assert called.isdisjoint(RUNS_CODE - ({"eval"} if name in CALLS_SKETCHES else set())), name


_NAMES = (ast.Name, ast.Attribute)
_LAST = {call.rpartition(".")[2] for call in RUNS_CODE}
