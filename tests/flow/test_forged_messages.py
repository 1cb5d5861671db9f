"""Kernels that speak to perfci in place of their worker: no message gets a better verdict, or ends anything else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from perfci.worker import confine
from tests.flow.conftest import quick_topic
from tests.git_repositories import commit_all, git
from tests.program import call

pytestmark = pytest.mark.slow

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
ERROR = {"error": "E", "message": "no", "file": None, "line": None}
'''

FAILING = {"REGRESSED", "WRONG", "ERROR", "WEAKENED"}

SLOWER, ZEROS = "US_PER_MEGABYTE = 448.0", "out[...] = 0.0"


UNASKED = "worker_unasked"


@dataclass(frozen=True)
class Forgery:
    """What a kernel's file does when it is imported, in which of its op's processes, and a reason that it gets."""

    code: str
    where: str = "Describe"  # task of the process that it is done in
    reason: str = UNASKED
    zeros: bool = False  # the kernel answers zeros. Else it is slower by 40 %
    edits: tuple[tuple[str, str, str], ...] = ()  # of its suites: part, text, another text


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


def tries(code: str) -> Forgery:
    """Tried in every process of the op, whatever comes of it."""
    return Forgery(f"with __import__('contextlib').suppress(Exception):\n    {code}", "", SLOW)


def suite(part: str, before: str, after: str, reason: str = "weakened", *, zeros: bool = False) -> Forgery:
    """A suite that asks for less."""
    return Forgery("", "", reason, zeros, ((part, before, after),))


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
    # --- more of the first three kinds
    "renamed_from_what_is_there": describes("renamed_from='honest'", "renamed_from_present"),
    "renamed_from_nothing": describes("renamed_from='nowhere'", SLOW),
    "renamed_from_itself": describes("renamed_from='OP'", "renamed_from_present"),
    "a_warm_cache": describes("cache='warm'", SLOW),
    "another_cache": describes("cache='hot'"),
    "another_signature": describes("signature=('x', 'factor', 'more')", "change_lacks_files"),
    "endless_signature": describes("signature=('x' * (1 << 20),)", "change_lacks_files"),
    "tensors_that_it_stores": describes("stored=('*',)", SLOW),
    "outdated_by_its_own": describes("outdated=Reason('copy_behind')"),
    "cases_without_end": describes("performance=tuple(f'rows={n}' for n in range(20000))", "weakened"),
    "escapes": describes(r"performance=('\x1b[2J</td><script>@all\n/close',)", "weakened"),
    "began_again": says("say(Began(1))"),
    "began_by_the_host": Forgery("say(Began(1))", "Serve"),
    "no_number": says("""say(b'{"kind":"OpDone","body":{"measure_s":NaN}}\\n')"""),
    "negative_seconds": says("say(OpDone(measure_s=-1.0))"),
    "late_without_a_limit": says("say(OpDone(late=True)); os._exit(0)", WRONG),
    "why_it_is_late": says("say(Finished(PerformanceCase('rows=9', late=Reason('case_late'))))"),
    "nothing_weaker": says("say(OpDone(change=SuiteChange())); os._exit(0)", WRONG),
    "weaker_without_a_name": says("say(OpDone(change=SuiteChange((Reason('weaker_fewer'),)))); os._exit(0)"),
    "facts_of_its_own": says(
        "say(AccuracyCase('rows=' + '9' * 5000, 'normal', 'contiguous', 0, "
        "failure=Reason('wrong_values', {'left_out': 'x', 'left': 'y', 'change': 'z'}))); say(OpDone()); os._exit(0)",
        WRONG,
    ),
    "limits_without_end": says("say(OpDone(limits=Limits(copy_gbps=1e9))); os._exit(0)", WRONG),
    "coverage": says("""say(b'{"kind":"Covered","body":{"op":"OP","target":"sm_90"}}\\n')"""),
    "not_interpreted": answers("replace(m, error=ERROR, kinds=('NotInterpretedError',))", "kernel_raised"),
    "out_of_memory": answers("replace(m, error=ERROR, kinds=('OutOfMemoryError',))", "out_of_memory"),
    "ended_by_an_error": answers("replace(m, error=ERROR, kinds=('KeyboardInterrupt', 'SystemExit'))", "kernel_raised"),
    "no_error_at_all": answers("replace(m, error={}, kinds=())", "kernel_raised"),
    "escapes_in_an_error": answers(r"replace(m, error={**ERROR, 'message': '\x1b[2J<script>@all'})", "kernel_raised"),
    "less_than_no_damage": answers("replace(m, damage=Damage(-5, -5, -5))"),
    "races_without_end": answers("replace(m, races=(('x', 1, (0, 0), {}),) * 9999)", "race"),
    "names_without_end": answers("replace(m, launched=('k' * (1 << 22),) * 9)", "worker_flooded"),
    "all_memory_in_use": answers("replace(m, in_use=1 << 62)", SLOW),
    "binaries": answers("replace(m, compiled=(CompiledKernel('k' * 9999),) * 99)", SLOW),
    "an_answer_before_a_call": Forgery("say(Called(output=7)); say(Called(output=7))", "Serve"),
    "half_a_line": Forgery('say(b\'{"kind":"Ready",\')', "Describe", SLOW),
    "no_pipe": Forgery("os.close(channel._descriptor)", "Describe", "worker_exited"),
    "no_pipe_of_the_host": Forgery("os.close(channel._descriptor)", "Serve", "worker_exited"),
    "a_child_that_speaks": Forgery("os.fork() or (say(PlannedOp('honest')), os._exit(0))", "Describe"),
    # --- processes and files
    "ends_its_group": Forgery("os.kill(0, 9)", "Serve", "worker_killed"),
    "ends_a_bystander": Forgery("os.kill(BYSTANDER, 9)", "Serve", "import_failed"),
    "ends_its_parent": Forgery("os.kill(os.getppid(), 9)", "Serve", "import_failed"),
    "other_files": tries("[path.write_text('') for path in task.place.root.rglob('*.py')]"),
    "a_file_outside": tries("open(OUTSIDE, 'w').write('x')"),
    "no_content_outside": tries("os.truncate(OUTSIDE, 0)"),
    "another_mode_outside": tries("os.chmod(OUTSIDE, 0)"),
    "a_link_to_outside": tries("os.symlink(OUTSIDE, OUTSIDE + '-link')"),
    "a_name_outside": tries("os.rename(OUTSIDE, OUTSIDE + '-moved')"),
    "no_file_outside": tries("os.unlink(OUTSIDE)"),
    "a_pipe_outside": tries("os.mkfifo(OUTSIDE + '-pipe')"),
    "secrets_in_its_log": tries(
        "import glob; [print(open(name, 'rb').read()) for name in glob.glob('/proc/*/environ')]"
    ),
    "memory_of_its_parent": tries("print(open(f'/proc/{os.getppid()}/mem', 'rb').read(9))"),
    "a_terminal": tries("open('/dev/tty', 'w').write('\\x1b[2J')"),
    "shared_memory": tries("open('/dev/shm/perfci-forged', 'w').write('answer')"),
    # --- suites
    "a_wide_tolerance": suite("accuracy", "    cases=", "    tolerance={'float32': (1e9, 1e9)}, cases=", zeros=True),
    "one_case": suite("accuracy", "rows=[1, 7, 64], cols=[31]", "rows=[1], cols=[31]", zeros=True),
    "no_probes": suite(
        "accuracy", "probe_cases=perfci.grid(rows=[5], cols=[31]", "probe_cases=perfci.grid(rows=[1], cols=[1]"
    ),
    # A suite with its reference as kernel judges the function that users call.
    "the_reference_as_kernel": suite("accuracy", "kernel=kernel", "kernel=reference", WRONG, zeros=True),
    "a_kernel_around_it": suite("performance", "kernel=kernel", "kernel=lambda x, factor: reference(x, factor)"),
    "more_bytes": suite("performance", "2 * rows", "9 * rows"),
    "the_seed_ignored": suite(
        "performance", "make_inputs=make_inputs", "make_inputs=lambda seed, **given: make_inputs(seed=0, **given)"
    ),
    "inputs_of_zeros": suite(
        "accuracy",
        "make_inputs=make_inputs",
        "make_inputs=lambda **given: {**make_inputs(**given), 'factor': 0.0}",
        zeros=True,
    ),
    "a_slow_reference": suite("performance", "480.0", "960.0"),
    "warm_by_its_suite": suite("performance", "cases=", "cache='warm', cases="),
    "more_terms": suite("accuracy", "    cases=", "    reduces=lambda **_: 10**12, cases=", zeros=True),
    "cases_by_a_variable": suite(
        "performance", "rows=[256]", "rows=[256] if __import__('os').environ.get('X') else [1]"
    ),
    "another_class": suite(
        "accuracy",
        "accuracy = perfci",
        "perfci.Accuracy.__eq__ = lambda *_: True\naccuracy = perfci",
        WRONG,
        zeros=True,
    ),
    "an_end_by_its_suite": suite(
        "performance",
        "if __name__",
        "import os, sys\nif 'perfci.worker.work' in sys.modules: os._exit(0)\nif __name__",
        "worker_exited",
    ),
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
            speech = f"{PRELUDE}\nif {forgery.where!r} in ('', WHERE):\n    pass\n{guarded}\n"
            text += speech.replace("OP'", f"{op}'").replace('"OP"', f'"{op}"').replace("BYSTANDER", str(bystander))
            text = text.replace("OUTSIDE", repr(str(folder.parents[2] / "outside")))
        if part == "performance":
            text += "\n# Another text.\n"
        for _, before, after in (edit for edit in forgery.edits if edit[0] == part):
            assert before in text
            text = text.replace(before, after)
        (folder / f"{op}_{part}.py").write_text(text)


CONFINED = confine.can_isolate() and confine.landlock_version() >= 3
if not CONFINED:  # these would reach what lies outside
    first, last = ([*FORGERIES].index(name) for name in ("ends_its_group", "a_wide_tolerance"))
    FORGERIES = {name: FORGERIES[name] for name in [*FORGERIES][:first] + [*FORGERIES][last:]}

EACH_DAY = (
    *("renamed_zeros", "another_op_described", "blocks_of_a_judged_case", "done_early", "the_reference_as_kernel"),
    *(("ends_a_bystander", "a_file_outside") if CONFINED else ()),
)
"""Some of each kind. The others run at night."""


@dataclass(frozen=True)
class Judged:
    """A merge request with some of these ops: what came of it, and of what lies around."""

    code: int
    rows: list[dict]
    told: str
    lives: bool  # whether a process of the same user goes on
    outside: dict[str, str]  # what lies beside the project, by name
    secrets: list[str]  # files of reports/ that hold a secret of this process
    dirty: str  # what differs from the commit

    def find(self, name):
        """Verdicts and kinds of reasons of an op."""
        found = [row for row in self.rows if row["op"] == name]
        reasons = [reason for row in found for reason in (row["reason"], *row["also"]) if reason]
        return {row["verdict"] for row in found}, {reason["kind"] for reason in reasons}


def judge(folder, names):
    """Judge a merge request with these forgeries."""
    secret = f"secret-{os.getpid()}-{len(names)}"
    with quick_topic(folder) as (root, _), contextlib.ExitStack() as stack:
        stack.enter_context(pytest.MonkeyPatch.context()).setenv("CI_JOB_TOKEN", secret)
        kernels, outside = root / "kernels", root.parent / "outside"
        outside.write_text("theirs")
        suite = kernels / "scale" / "scale_performance.py"
        suite.write_text(suite.read_text().replace("rows=[256, 512]", "rows=[256]"))
        for op in ("honest", *names):
            (kernels / op).mkdir()
            for path in (kernels / "scale").glob("*.py"):
                (kernels / op / path.name.replace("scale", op)).write_text(path.read_text().replace("scale", op))
        git(root, "checkout", "-q", "main")
        commit_all(root)
        git(root, "checkout", "-q", "-B", "topic")
        bystander = stack.enter_context(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE))
        for op in names:
            write(kernels / op, op, FORGERIES[op], bystander.pid)
        commit_all(root)
        options = ["--device", "fake", "--format", "json", "--seed", "7", "--budget", "0.05"]
        done = call("check", *options, "--project", str(root))
        rows, lives = json.loads(done.out)["verdicts"], bystander.poll() is None
        bystander.kill()
        kept = {path.name: path.read_text() for path in root.parent.glob("outside*")}
        stored = [path for path in (root / "reports").rglob("*") if path.is_file()]
        leaks = [path.name for path in stored if secret.encode() in path.read_bytes()]
        return Judged(done.code, rows, done.err, lives, kept, leaks, git(root, "status", "--porcelain"))


@pytest.fixture(scope="module", params=["day", pytest.param("night", marks=pytest.mark.nightly)])
def judged(request, tmp_path_factory):
    names = EACH_DAY if request.param == "day" else [name for name in FORGERIES if name not in EACH_DAY]
    return names, judge(tmp_path_factory.mktemp("forged"), names)


def test_no_forgery_gets_a_better_verdict(judged):
    names, merge_request = judged
    found = {name: merge_request.find(name) for name in names}

    assert not [name for name, (verdicts, _) in found.items() if not verdicts & FAILING]
    assert not [name for name, (_, kinds) in found.items() if FORGERIES[name].reason not in kinds]


def test_nothing_around_a_forgery_is_reached(judged):
    """Honest ops beside it are judged as ever, no process is ended, no file is written, no secret is kept."""
    names, merge_request = judged

    assert merge_request.code == 2 and "Traceback" not in merge_request.told
    assert {row["verdict"] for row in merge_request.rows if row["op"] not in names} == {"UNCHANGED"}
    assert merge_request.lives and merge_request.outside == {"outside": "theirs"}
    assert (merge_request.secrets, merge_request.dirty) == ([], "")
    assert not Path("/dev/shm/perfci-forged").exists()
