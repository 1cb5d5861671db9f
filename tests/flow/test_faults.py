"""Any fault of an op costs only that op, is one sentence, and leaves nothing half-written."""

import json
import signal
import time

import pytest

from perfci import store
from tests.git_repositories import begin_topic
from tests.processes import NAME, runs_there

KERNEL_FAULTS = {
    "raises": ("np.maximum(x, 0, out=out)", "raise RuntimeError('no such stream')", "ERROR", "no such stream"),
    "wrong shape": ("return out", "return out[:, :1]", "WRONG", "has shape"),
    "wrong dtype": ("return out", "return out.astype(np.float64)", "WRONG", "has dtype float64"),
    "not an array": ("return out", "return 3", "WRONG", "a plain tensor of the device is needed"),
    "partly unwritten": (
        "np.maximum(x, 0, out=out)",
        "np.maximum(x[:, 1:], 0, out=out[:, 1:])",
        "WRONG",
        "never written",
    ),
    "changes its input": (
        "np.maximum(x, 0, out=out)",
        "np.maximum(x, 0, out=out); x += 1",
        "WRONG",
        "changed its input x",
    ),
    "gives NaN": ("np.maximum(x, 0, out=out)", "out[:] = np.nan", "WRONG", "has nan instead of"),
    "gives its input back": ("return out", "return np.maximum(x, 0, out=x)", "WRONG", "changed its input"),
    "leaves the process": ("fake.work(", "import os; os._exit(5); fake.work(", "ERROR", "status 5"),
    "crashes": ("fake.work(", "fake.crash(); fake.work(", "ERROR", "SIGSEGV"),
    "runs out of memory": ("np.maximum(x, 0, out=out)", "raise MemoryError('32 GiB')", "ERROR", "Out of memory"),
}


def test_kernels_that_go_wrong_are_named_and_harm_no_other_op(project):
    ops = {fault: f"relu_{number}" for number, fault in enumerate(KERNEL_FAULTS)}
    for fault, op in ops.items():
        project.copy_op("relu", op)
        project.edit(op, "triton", *KERNEL_FAULTS[fault][:2])

    answer = project.check(*ops.values(), "scale")

    assert answer.code == 2
    for fault, op in ops.items():
        *_, verdict, words = KERNEL_FAULTS[fault]
        sentences = [row["reason"]["sentence"] for (name, _, _), row in answer.rows.items() if name == op]
        assert verdict in answer.verdicts(op), fault
        assert any(words in sentence for sentence in sentences), (fault, sentences)
    assert answer.verdicts("scale") == {"PASS", "NEW"}


@pytest.mark.parametrize("apart", [False, True], ids=["alone", "judged by its base's suites"])
def test_a_crash_names_the_kernels_line_and_what_was_being_checked(project, apart):
    """With a base, the kernel's process makes the calls of a check that goes on in another one."""
    if apart:
        begin_topic(project.root)
    project.edit("relu", "triton", "fake.work(", "fake.crash() if len(x) == 7 else None\n    fake.work(")

    answer = project.check("relu", "--case", "cols=31,dtype=float32", "--suite", "accuracy")

    (line,) = (
        number
        for number, text in enumerate(project.op_file("relu", "triton").read_text().splitlines(), 1)
        if "fake.crash" in text
    )
    told = f"relu crashed with SIGSEGV at kernels/relu/relu_triton.py:{line} during accuracy of rows=7,cols=31"
    assert told in answer.rows["relu", "accuracy", None]["reason"]["sentence"]
    assert "Extension modules" not in answer.out


COUNTS = """CALLS = []


def relu(x):
    CALLS.append(1)
    if len(CALLS) > 40:
        os._exit(7)
"""

WAITS = """TIMERS = []


def scale(x, factor):
    for timer in TIMERS:
        timer.cancel()
    TIMERS[:] = [threading.Timer(0.03, os._exit, (7,))]
    TIMERS[0].start()
"""


def test_an_op_that_ends_its_process_when_all_cases_were_right_once_is_an_error(project):
    """relu in a later check of a case, scale after the last check."""
    begin_topic(project.root)
    for op, first, code in (("relu", "def relu(x):\n", COUNTS), ("scale", "def scale(x, factor):\n", WAITS)):
        project.edit(op, "triton", first, f"import os\nimport threading\n\n{code}")

    answer = project.check("relu", "scale", "--suite", "accuracy")

    for op in ("relu", "scale"):
        row = answer.rows[op, "accuracy", None]
        assert (row["verdict"], row["reason"]["kind"]) == ("ERROR", "worker_exited")


def test_a_kernel_that_keeps_its_output_buffer_is_wrong(project):
    project.edit("relu", "triton", "def relu(x):", "_kept = {}\n\n\ndef relu(x):")
    project.edit(
        "relu",
        "triton",
        "out = np.empty(x.shape, x.dtype)",
        "out = _kept.setdefault(x.shape, np.empty(x.shape, x.dtype))",
    )

    answer = project.check("relu")

    assert "WRONG" in answer.verdicts("relu")
    assert "keeps its output" in answer.out


@pytest.mark.parametrize("hangs", ["fake.hang()", "fake.hang() if len(x) == 512 else None"])  # 512 rows are timed alone
def test_a_kernel_that_hangs_is_stopped_at_the_limit_and_its_line_is_named(project, hangs):
    (project.root / "pyproject.toml").write_text("[tool.perfci]\ntime_limit_s = 2.0\n")
    project.edit("relu", "triton", "fake.work(", f"{hangs}; fake.work(")
    lines = (project.root / "kernels/relu/relu_triton.py").read_text().splitlines()
    line = next(number for number, line in enumerate(lines, 1) if "fake.hang" in line)

    answer = project.check("relu", "scale")

    assert "ERROR" in answer.verdicts("relu")
    assert f"relu hung at kernels/relu/relu_triton.py:{line}: nothing came for 2.00 s" in answer.out
    assert "time_limit_s" in answer.out
    assert answer.verdicts("scale") == {"PASS", "NEW"}


def test_a_wrong_timed_output_is_wrong_though_the_accuracy_suite_passes(project):
    # Its numbers must not lead the search to the size at which it is wrong.
    project.edit("relu", "triton", "return out", "out[x.shape[0] >> 9 and -1] += x.shape[0] >> 9; return out")

    answer = project.check("relu")

    rows = {case: row["verdict"] for (_, suite, case), row in answer.rows.items() if suite == "performance"}
    assert rows == {"rows=256,cols=128,dtype=float32": "NEW", "rows=512,cols=128,dtype=float32": "WRONG"}


def test_a_kernel_that_does_no_work_on_the_device_is_not_timed(project):
    project.edit("relu", "triton", "fake.work(2.0 + US_PER_MEGABYTE * x.nbytes / 1e6)", "pass")

    answer = project.check("relu")

    assert answer.code == 2
    assert "launched nothing" in answer.out


def test_an_op_that_breaks_the_contract_is_an_error_of_that_op(project):
    broken = {
        "raises": ("triton", "def raises(x):", "raise ImportError('no libdevice')\n\n\ndef raises(x):", "no libdevice"),
        "inputs": ("baseline", "def make_inputs(rows, cols,", "def make_inputs(rows, columns,", "make_inputs"),
        "suite": ("performance", "performance = perfci.Performance(", "speed = perfci.Performance(", "performance"),
        "empty": ("performance", "rows=[256, 512]", "rows=[]", "no cases"),
        "syntax": ("triton", "def syntax(x):", "def syntax(x", "syntax_triton.py"),
        "killer": ("triton", "def killer(x):", "import os\nos._exit(9)\n\n\ndef killer(x):", "status 9"),
    }
    for op, (part, before, after, _) in broken.items():
        project.copy_op("relu", op)
        project.edit(op, part, before, after)
    project.op_file("relu", "accuracy").unlink()

    answer = project.check(*broken, "relu", "scale")

    assert answer.code == 2
    for op, words in [*((op, facts[-1]) for op, facts in broken.items()), ("relu", "relu_accuracy.py")]:
        assert answer.verdicts(op) == {"ERROR"}
        assert any(words in row["reason"]["sentence"] for (name, _, _), row in answer.rows.items() if name == op), op
    assert answer.verdicts("scale") == {"PASS", "NEW"}


def test_an_unknown_op_is_a_usage_error_with_the_nearest_name(project):
    answer = project.check("sclae")

    assert answer.code == 1
    assert "scale" in answer.err
    assert answer.out == ""


def test_a_torn_run_is_named_and_left_as_it_is(project):
    project.first_check("relu")
    path = project.root / "reports" / "run.json"
    torn = path.read_bytes()[:5000]
    path.write_bytes(torn)

    answer = project.perfci("compare", str(path))

    assert answer.code == 1
    assert "run.json" in answer.err
    assert path.read_bytes() == torn


def test_a_torn_baseline_stops_the_verdict_and_survives(project):
    project.first_check("relu")
    project.accept()
    path = project.root / "baselines" / "fake-one" / "relu.json"
    path.write_bytes(path.read_bytes()[:400])

    answer = project.check("relu")

    assert answer.code == 1
    assert "relu.json" in answer.err
    assert path.stat().st_size == 400


@pytest.mark.parametrize(("field", "value", "words"), [("timer", "event", "event"), ("device", "fake-two", "fake-two")])
def test_a_baseline_of_another_timer_or_device_cannot_speak(project, field, value, words):
    project.first_check("relu")
    project.accept()
    path = project.root / "baselines" / "fake-one" / "relu.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({**stored, field: value}))

    answer = project.check("relu")

    assert (answer.code, words in answer.out + answer.err) in {(3, True), (1, True)}
    assert "REGRESSED" not in answer.out


@pytest.mark.slow
def test_a_signal_in_the_middle_keeps_what_was_measured(project):
    project.edit("scale", "triton", "fake.work(", "fake.hang(); fake.work(")
    process = project.start("check", "--device", "fake")
    reports = project.root / "reports"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (reports / "run.json").exists() and len(store.read_run(reports).ops) >= 2:
            break
        time.sleep(0.05)

    process.send_signal(signal.SIGHUP)
    out, err = process.communicate(timeout=30)

    assert process.returncode == 129, out + err
    run = store.read_run(reports)
    assert run.stopped == "SIGHUP"
    assert {op.op for op in run.ops if op.performance} == {"relu", "row_sum"}
    assert "perfci compare" in err
    judged = project.perfci("compare", str(reports), "--format", "json")
    assert judged.verdicts("relu") == {"PASS", "NEW"}


@pytest.mark.slow
def test_a_worker_ends_when_its_parent_is_killed(project, monkeypatch):
    monkeypatch.setenv("PERFCI_WRITABLE", str(project.root))
    note = f"open({str(project.root / 'pid')!r}, 'w').write({NAME})"
    project.edit("relu", "triton", "fake.work(", f"{note}; fake.hang(); fake.work(")
    process = project.start("check", "--device", "fake", "relu")
    deadline = time.monotonic() + 60
    pid = project.root / "pid"
    while time.monotonic() < deadline and not (pid.exists() and pid.read_text()):
        time.sleep(0.05)

    process.kill()
    process.communicate(timeout=30)

    while time.monotonic() < deadline and runs_there(pid.read_text()):
        time.sleep(0.05)
    assert not runs_there(pid.read_text())
