"""What the markers promise: a machine with the device never passes by skipping."""

import compileall
import functools
import gc
import importlib.util
import os
import signal
import sys
from pathlib import Path

import pytest

DEVICES = ("cuda", "npu")
LEFT_OUT = pytest.StashKey[int]()
"""how many tests are left to `make nightly`"""


SIGNALS = [getattr(signal, name) for name in ("SIGHUP", "SIGINT", "SIGQUIT", "SIGTERM") if hasattr(signal, name)]


def pytest_configure(config):
    """The job's time limit and its number of cores do not apply to the checks that tests run."""
    for name in ("CI_JOB_TIMEOUT", "CI_JOB_STARTED_AT"):
        os.environ.pop(name, None)
    hear_signals()
    os.fsync = lambda file: None  # no file of a test has to outlive a power cut
    # As many tests run at a time as there are cores. If each took all of them, they would wait for one another.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    # Compiling all tests is most of what each process does before its first test. It may keep what it compiled.
    sys.dont_write_bytecode = False
    if not hasattr(config, "workerinput"):
        compile_perfci()
    # xdist begins with the files of most tests, the longest of which are often of few: see the order below.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(items):
    """Files with slow tests first: one that began as the last would keep one process busy while the others wait."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


def pytest_deselected(items):
    """Count the nightly tests among them, unless other names were asked for."""
    if items and not items[0].config.option.keyword:
        items[0].config.stash[LEFT_OUT] = sum(item.get_closest_marker("nightly") is not None for item in items)


def pytest_sessionfinish(session):
    """A process of xdist tells the one that prints."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left_out"] = session.config.stash.get(LEFT_OUT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[LEFT_OUT] = getattr(node, "workeroutput", {}).get("left_out", 0)


def pytest_terminal_summary(terminalreporter, config):
    if count := config.stash.get(LEFT_OUT, 0):
        terminalreporter.write_line(f"{count} nightly tests were left out; make nightly runs them")


def pytest_collection(session):
    """What collecting makes lives until the end. The garbage collector need not look through it again and again."""
    gc.disable()


def pytest_collection_finish(session):
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol():
    """A command that a test runs in this process handles signals as a program does; afterwards pytest does again."""
    before = [(number, handler) for number in SIGNALS if (handler := signal.getsignal(number)) is not None]
    try:
        return (yield)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def pytest_runtest_setup(item):
    if item.get_closest_marker("torch") is not None and (missing := missing_packages()):
        sentence = f"{' and '.join(missing)} not installed"
        if os.environ.get("CI"):
            pytest.fail(f"{sentence}: in CI that is a failure", pytrace=False)
        pytest.skip(sentence)
    for name in DEVICES:
        if item.get_closest_marker(name) is not None and not has_device(name):
            pytest.skip(f"no {name} device here")


@pytest.fixture(autouse=True)
def own_git(request, monkeypatch):
    """No user's settings, pipeline's variables or repository above its folder reach git in a test that has a folder."""
    if makes_files(request):
        from tests.git_repositories import alone

        alone(monkeypatch, request.getfixturevalue("tmp_path").parent)


@pytest.fixture
def pictures():
    """The test's reports have pictures."""


@pytest.fixture(autouse=True)
def few_pictures(request):
    """Only tests that take `pictures`, or lie in the folder of that name, get some from the checks that they make."""
    folders = request.path.relative_to(Path(__file__).parent).parts
    if "pictures" in (*folders, *request.fixturenames) or not makes_files(request):
        yield
        return
    from tests.program import no_pictures

    with no_pictures():
        yield


def makes_files(request) -> bool:
    """Whether a test has a folder. Others take nothing of `tests`: some stand alone, with a copy of this file."""
    return "tmp_path" in request.fixturenames


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    present = [name for name in DEVICES if item.get_closest_marker(name) is not None and has_device(name)]
    if present and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped on a machine with {present[0]}, where a skip is a failure: {report.longrepr}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config):
    """One process if tests would have to share a device. Else two more than cores, as many tests wait for workers."""
    return 1 if any(has_device(name) for name in DEVICES) else min((os.cpu_count() or 1) + 2, 4)


def hear_signals() -> None:
    """Ignore by a handler what `nohup make test &` has tests ignore: processes that they start inherit no handler."""
    for number in SIGNALS:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


def compile_perfci() -> None:
    """Once for the thousand processes that the tests start.

    Each would do it again if PYTHONDONTWRITEBYTECODE keeps it from storing the result for the next one.
    """
    spec = importlib.util.find_spec("perfci")
    if spec is not None and spec.origin is not None:
        compileall.compile_dir(Path(spec.origin).parent, quiet=2)


def missing_packages() -> list[str]:
    return [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]


@functools.cache
def has_device(name: str) -> bool:
    """Returns True if torch sees such a device. torch is only imported if a marked test needs it."""
    try:
        import torch
    except (ImportError, RuntimeError):  # RuntimeError: an accelerator's plugin without its driver
        return False
    module = getattr(torch, name, None)
    return bool(module is not None and module.is_available())
