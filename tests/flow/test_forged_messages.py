"""Kernels that speak to perfci in place of their worker: no message gets a better verdict, or ends anything else."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
from dataclasses import dataclass

import pytest

from perfci.cli.main import run
from tests.flow.conftest import quick_topic
from tests.git_repositories import commit_all, git

PRELUDE = '''
import importlib
import os
import sys
from dataclasses import replace

for place in ("core.model", "worker.handover", "worker.protocol"):  # an op's files may not import them by name
    names = vars(importlib.import_module("perf" + "ci." + place))
    globals().update((name, value) for name, value in names.items() if not name.startswith("_"))


def find_worker():
    frame = sys._getframe()
    while not {"task", "channel"} <= frame.f_locals.keys():
        frame = frame.f_back
    return frame.f_locals["task"], frame.f_locals["channel"]


task, channel = find_worker()
WHERE, protocol = type(task).__name__, sys.modules[type(channel).__module__]
CASE = "rows=256,cols=128,dtype=float32"


def say(line):
    os.write(channel._descriptor, line if isinstance(line, bytes) else pack(line))


def alter(change):
    """Have every message of this op's go through a function, which returns those that are sent."""
    plain = protocol.pack
    def pack(message):
        return b"".join(map(plain, change(message) if getattr(message, "op", "OP") == "OP" else [message]))
    protocol.pack = pack


def fields(**changes):
    return lambda message: [replace(message, **changes)] if isinstance(message, PlannedOp) else [message]


def quick_block(index=0, process=0, us=1.0):
    times = Summary(5, us, us, us, us, us, us, us, us, 0.0, 0)
    arms = {"kernel": ArmBlock(times), "reference": ArmBlock(times), "base": ArmBlock(replace(times, median_us=2 * us))}
    shifts = {"kernel/reference": -0.7, "kernel/base": -0.7}
    return Measured(CASE, Block(index, process, 0.5, arms, shifts), dict.fromkeys(arms, (us,) * 5))


QUICK = PerformanceCase(CASE, base=BaseArm(same=False, duelled=True))
'''

SLOWER, ZEROS = "US_PER_MEGABYTE = 448.0", "out[...] = 0.0"


UNASKED = "worker_unasked"


@dataclass(frozen=True)
class Forgery:
    """What a kernel's file does when it is imported, in which of its op's processes, and a reason that it gets."""

    code: str
    where: str = "Describe"  # task of the process that it is done in
    reason: str = UNASKED
    zeros: bool = False  # the kernel answers zeros. Else it is slower by 40 %


def describes(field: str, reason: str = UNASKED, *, zeros: bool = False) -> Forgery:
    """A description with another field."""
    return Forgery(f"alter(fields({field}))", reason=reason, zeros=zeros)


def says(code: str, reason: str = UNASKED, *, zeros: bool = True) -> Forgery:
    """Said by the op's second process, which exists since the suite's text changed."""
    return Forgery(code, "Measure", reason, zeros)


def answers(answer: str, reason: str = UNASKED) -> Forgery:
    """Answers of the process that makes the op's calls."""
    code = f"alter(lambda m: [{answer} if m.compile_s is None else m] if isinstance(m, Called) else [m])"
    return Forgery(code, "Serve", reason)


def gives(**fields) -> Forgery:
    """An array as output that no sound process describes."""
    array = {"memory": 0, "dtype": "float32", "shape": [1, 1], "strides": [4, 4], "offset": 0} | fields
    return answers(f"replace(m, output={{'array': {array!r}}})")


SLOW, WRONG = "duel_slower", "accuracy_failed"

FORGERIES = {
    # --- what there is to do
    "renamed": describes("renamed={CASE: 'rows=1'}", SLOW),
    "renamed_zeros": describes("renamed={CASE: 'rows=1'}", WRONG, zeros=True),
    "renamed_what_both_have": describes("renamed={CASE: CASE}", SLOW),
    "no_cases": describes("performance=()", "weakened"),
    "no_cases_unlisted": describes("performance=(), unlisted=True"),
    "unlisted": describes("unlisted=True"),
    "base_of_its_own": describes("base=PlannedBase(same=True)"),
    "audit_of_its_own": describes("audit=(CASE,)"),
    "no_accuracy": describes("accuracy=()", WRONG, zeros=True),
    "other_cases": describes("performance=('rows=1',)", "weakened"),
    "gone_by_plan": describes("failure=Reason('device_gone', {'device': 'fake', 'why': 'lost'})"),
    "described_twice": Forgery("alter(lambda m: [m, m] if isinstance(m, PlannedOp) else [m])"),
    "another_op_described": Forgery("say(PlannedOp('honest', performance=()))"),
    "no_op_described": Forgery("say(PlannedOp('nowhere'))"),
    "another_device": Forgery("say(Ready(Device('fake', 'Other', 'other', 'FAKE-9')))"),
    "measured_at_once": Forgery("say(quick_block())"),
    # --- the op's second process
    "blocks_of_a_judged_case": says("[say(quick_block(number)) for number in range(1500)]", zeros=False),
    "a_later_process": says("say(Prepared(QUICK)); say(quick_block(process=1))", zeros=False),
    "prepared_judged": says("say(Prepared(QUICK))", zeros=False),
    "finished_judged": says("say(Finished(QUICK))", zeros=False),
    "finished_unknown": says("say(Finished(PerformanceCase('rows=9')))"),
    "device_gone": says("say(Failed(Reason('device_gone', {'device': 'fake', 'why': 'lost'})))"),
    "device_taken": says("say(Failed(Reason('device_taken', {'holder': 'me', 'limit_s': 1.0})))"),
    "late": says("say(Failed(Reason('worker_late')))"),
    "ready_again": says("say(Ready(Device('fake', 'Other', 'other', 'FAKE-9')))"),
    "start_again": says("say(Doing('start', 'OP'))"),
    "done_as_the_parent_says": says("say(Doing('done', 'OP'))"),
    "of_another_op": says("say(Doing('measure', 'honest'))"),
    "another_lock": says("say(LockAsked('other'))"),
    "hosted": says("""say(b'{"kind":"Hosted","body":{"pid":BYSTANDER}}\\n')"""),
    "host_lost": says("say(HostLost(Reason('worker_silent')))"),
    "refused": says("say(Refused(CASE, Reason('not_replayable', {'what': 'x'})))"),
    "turns": says("say(TurnAsked())"),
    "a_foreign_timer": says("say(Timing('event'))"),
    "nothing_to_time": says("say(OpDone(unmeasured=Reason('cpu_only')))"),
    "done_twice": says("say(OpDone()); say(OpDone())"),
    "done_and_more": says("say(OpDone()); say(AccuracyCase('rows=1', 'normal', 'contiguous', 0))"),
    "done_early": says("say(OpDone()); os._exit(0)", "weaker_unknown", zeros=False),
    "checks_of_the_base": says(
        "say(AccuracyCase('rows=1', 'normal', 'contiguous', 0, of_base=True)); os._exit(0)", WRONG
    ),
    "checks_of_its_own": says(
        "say(AccuracyCase('rows=1', 'normal', 'contiguous', 0)); say(OpDone()); os._exit(0)", WRONG
    ),
    "another_logic": says(
        "say(AccuracyCase('rows=1', 'normal', 'contiguous', 0)); "
        "say(OpDone(change=SuiteChange((), (Reason('answers_differ', {'case': 'rows=1'}),)))); os._exit(0)",
        "change_lacks_files",
    ),
    "other_body": says("""say(b'{"kind":"OpDone","body":{"limits":7}}\\n')"""),
    "flood": says("say(b'x' * (1 << 26))", "worker_flooded"),
    "apart": says("say(Apart(Reason('lost_together'))); os._exit(0)", SLOW, zeros=False),
    # --- the process that makes calls
    "addresses": gives(dtype="O"),
    "records": gives(dtype="O8, i4"),
    "beyond": gives(shape=[1 << 30]),
    "before": gives(offset=-8),
    "endless": gives(shape=[1 << 50], strides=[0]),
    "no_memory": gives(memory=99),
    "no_output": answers("replace(m, output={'evil': 1})"),
    "other_numbers": answers("replace(m, again=(1, 2, 3))"),
    "negative_time": answers("replace(m, compile_s=-1.0, spent_us=(-5.0,))"),
    "endless_time": answers("replace(m, spent_us=(1e300,))"),
    "more_memory": answers("replace(m, memory=(*m.memory, Lent(1 << 62, 1 << 62)))"),
    "unasked_answers": Forgery("[say(Called()) for _ in range(3)]", "Serve"),
    "blocks_by_the_host": Forgery("say(quick_block())", "Serve"),
    "gone_by_the_host": Forgery("say(Failed(Reason('device_gone', {'device': 'fake', 'why': 'lost'})))", "Serve"),
}


def write(folder, op, forgery, bystander):
    """An op with a kernel that is worse than its base's, and speaks."""
    for path in folder.parent.joinpath("scale").glob("*.py"):
        text = path.read_text().replace("scale", op)
        part = path.stem.removeprefix("scale_")
        if part == "triton":
            guarded = "\n".join(f"    {line}" for line in forgery.code.splitlines())
            text = text.replace("US_PER_MEGABYTE = 320.0", SLOWER if not forgery.zeros else "US_PER_MEGABYTE = 320.0")
            text = text.replace("    return out", f"    {ZEROS}\n    return out") if forgery.zeros else text
            speech = f"{PRELUDE}\nif WHERE == {forgery.where!r}:\n{guarded}\n"
            text += speech.replace("OP'", f"{op}'").replace('"OP"', f'"{op}"').replace("BYSTANDER", str(bystander))
        if part == "performance":
            text += "\n# Another text.\n"
        (folder / f"{op}_{part}.py").write_text(text)


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """Verdicts and reasons by op, the exit code, what was printed, and a process that should go on."""
    with quick_topic(tmp_path_factory.mktemp("forged")) as (root, _), contextlib.ExitStack() as stack:
        kernels = root / "kernels"
        suite = kernels / "scale" / "scale_performance.py"
        suite.write_text(suite.read_text().replace("rows=[256, 512]", "rows=[256]"))
        for op in ("honest", *FORGERIES):
            (kernels / op).mkdir()
            for path in (kernels / "scale").glob("*.py"):
                (kernels / op / path.name.replace("scale", op)).write_text(path.read_text().replace("scale", op))
        git(root, "checkout", "-q", "main")
        commit_all(root)
        git(root, "checkout", "-q", "-B", "topic")
        bystander = stack.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        for op, forgery in FORGERIES.items():
            write(kernels / op, op, forgery, bystander.pid)
        commit_all(root)
        printed, told = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told):
            options = ["--device", "fake", "--format", "json", "--seed", "7", "--budget", "0.05"]
            code = run(["check", *options, "--project", str(root)])
        printed.seek(0)
        rows = json.load(printed)["verdicts"]
        lives = bystander.poll() is None
        bystander.kill()
        yield code, rows, told.getvalue(), lives


def test_honest_ops_beside_them_are_judged_as_ever_and_nothing_else_is_ended(judged):
    code, rows, told, lives = judged

    assert lives and code == 2 and "Traceback" not in told
    assert {row["verdict"] for row in rows if row["op"] not in FORGERIES} == {"UNCHANGED"}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_message_gets_no_better_verdict(name, judged):
    _, rows, _, _ = judged
    found = [row for row in rows if row["op"] == name]
    kinds = {reason["kind"] for row in found for reason in (row["reason"], *row["also"])}

    assert {row["verdict"] for row in found} & {"REGRESSED", "WRONG", "ERROR", "WEAKENED"}
    assert FORGERIES[name].reason in kinds
