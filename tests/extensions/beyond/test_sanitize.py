"""An op's probe cases under sanitizers, by a stand-in for compute-sanitizer."""

from collections import Counter

import pytest

from perfci.core.model import Reason
from perfci.core.wording import sentence
from perfci.extensions.beyond.sanitize import MODES, Finding, find_modes, follow_log, list_tools, parse, surround, tell
from perfci.worker.tasks import WorkerEnvironment

OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at softmax_kernel+0x190 in /repo/kernels/softmax/softmax_triton.py:95
=========     by thread (33,0,0) in block (0,0,0)
=========     Address 0x7f5c24000404 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: [0x2d3b5f]
=========                in /usr/lib/x86_64-linux-gnu/libcuda.so.1
=========
========= Invalid __global__ write of size 4 bytes
=========     at softmax_kernel+0x190 in /repo/kernels/softmax/softmax_triton.py:95
=========     by thread (34,0,0) in block (0,0,0)
=========
========= ERROR SUMMARY: 2 errors
"""
RACE = """\
========= Error: Race reported between Write access at fill(float*)+0x30 in fill.cu:12
=========     and Read access at fill(float*)+0x50 in fill.cu:13 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
OF_TORCH = """\
========= Uninitialized __global__ memory read of size 4 bytes
=========     at void at::native::vectorized_elementwise_kernel<(int)4>(int)+0x70
=========
========= Barrier error detected. Divergent thread(s) in block
=========     at reduce(float*)+0x90
=========
"""
OF_GSAN = """\
/repo/softmax_triton.py:95: softmax_kernel: block: [1,0,0], thread: [0,0,0] Assertion `Write after write race` failed.
/repo/softmax_triton.py:95: softmax_kernel: block: [1,0,0], thread: [1,0,0] Assertion `Write after write race` failed.
"""
NAMELESS = (
    "unknown:0: unknown: block: [0,0,0], thread: [0,0,0] Assertion `Accessing buffer with pending access` failed.\n"
)
FULL = "<unknown>:0: : block: [0,0,0], thread: [0,0,0] Assertion `GSan clock buffer token overwritten` failed.\n"
STAND_IN = """#!/bin/sh
while [ "$1" != --target-processes ]; do
    [ "$1" = --tool ] && tool=$2
    [ "$1" = --log-file ] && log=$2
    shift
done
shift 2
[ "$tool" = "{tool}" ] && cat > "$log" <<'END'
{log}END
exec "$@"
"""


def test_a_line_of_a_kernel_is_one_finding_however_many_threads_it_concerns():
    place = "/repo/kernels/softmax/softmax_triton.py:95"

    assert parse(OUT_OF_BOUNDS) == Counter(
        {Finding("Invalid __global__ write of size 4 bytes", "softmax_kernel", place): 2}
    )


def test_races_have_the_first_of_both_places():
    assert parse(RACE) == Counter(
        {Finding("Error: Race reported between Write access", "fill(float*)", "fill.cu:12"): 1}
    )


def test_what_triton_compiles_in_prints_assertions():
    place = "/repo/softmax_triton.py:95"

    assert parse(OF_GSAN) == Counter({Finding("Write after write race", "softmax_kernel", place): 2})
    assert parse(NAMELESS) == Counter({Finding("Accessing buffer with pending access", "-", ""): 1})


def test_an_assertion_without_a_kernel_is_told_by_the_function_of_its_line_in_the_projects_file(tmp_path):
    """Triton's sanitizers print the worker's copy of a file, which is gone after the run."""
    file = tmp_path / "kernels" / "twice" / "twice_triton.py"
    file.parent.mkdir(parents=True)
    file.write_text("import triton\n\n\n@triton.jit\ndef _twice(x):\n    pass\n")
    log = f"{file}:6: : block: [0,0,0], thread: [96,0,0] Assertion `Write after write race detected` failed.\n"
    (check,) = tell("gsan", log, None, tmp_path)

    words = "gsan found in _twice (kernels/twice/twice_triton.py:6), 1 time: Write after write race detected."
    assert sentence(check.failure) == words
    # What the log says is the word of the op's code.
    file.with_name("deep.py").write_text("(" * 10_000)
    (tmp_path / "elsewhere").mkdir()
    others = [log.replace(*edit) for edit in ((":6:", ":1:"), ("twice_triton", "deep"), ("twice_triton", "gone"))]
    for said, root in ((log, tmp_path / "elsewhere"), *((other, tmp_path) for other in (*others, NAMELESS))):
        (check,) = tell("gsan", said, None, root)
        assert check.failure.facts["kernel"] == "-"


def test_full_tables_of_gsan_are_no_finding_of_a_kernel():
    ended = Reason("worker_exited", {"status": 1})
    (check,) = tell("gsan", FULL, ended)

    assert check.failure is None
    assert sentence(check.unchecked) == "gsan watched nothing: GSan clock buffer token overwritten."


def test_a_sanitizer_of_triton_says_what_the_worker_printed_since_it_began(tmp_path):
    around = WorkerEnvironment({}, tmp_path, tmp_path / "log", 1.0, writable=(tmp_path,))
    around.log.write_text(NAMELESS)
    read_log = follow_log(around, "gsan")
    with around.log.open("a") as log:
        log.write(OF_GSAN)

    assert read_log() == OF_GSAN


def test_kernels_have_lines_under_what_triton_compiles_in(tmp_path):
    around = WorkerEnvironment({"TRITON_DISABLE_LINE_INFO": "1"}, tmp_path, tmp_path / "log", 1.0)

    assert surround(around, "gsan").environment["TRITON_DISABLE_LINE_INFO"] == "0"


def test_under_compute_sanitizer_each_array_is_memory_of_its_own_and_kernels_have_lines(tmp_path):
    around = WorkerEnvironment({"HOME": "/root"}, tmp_path, tmp_path / "log", 1.0, writable=(tmp_path,))

    assert surround(around, "memcheck").environment == {
        "HOME": "/root",
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",
        "TRITON_DISABLE_LINE_INFO": "0",
    }


def test_what_torch_does_is_left_out():
    assert parse(OF_TORCH) == Counter(
        {Finding("Barrier error detected. Divergent thread(s) in block", "reduce(float*)", ""): 1}
    )
    assert parse("========= ERROR SUMMARY: 0 errors\n") == Counter()


def test_sanitizers_of_triton_are_those_of_the_installed_one():
    pytest.importorskip("triton")

    assert set(find_modes()) <= set(MODES)
    assert not set(list_tools("cpu")) & set(MODES)


@pytest.fixture
def sanitize(project, tmp_path, monkeypatch):
    """A function that checks an op under a stand-in that reports this for one of its tools."""

    def sanitize(tool="", log=""):
        program = tmp_path / "bin" / "compute-sanitizer"
        program.parent.mkdir(exist_ok=True)
        program.write_text(STAND_IN.replace("{tool}", tool).replace("{log}", log))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
        answer = project.check("--suite", "accuracy", "--op", "scale", "--sanitize")
        return answer, project.run_record().ops[0]

    return sanitize


def test_a_finding_is_wrong_with_kernel_and_line(sanitize):
    answer, op = sanitize("memcheck", OUT_OF_BOUNDS)
    (said,) = [sentence(check.failure) for check in op.accuracy if check.failure]

    assert (answer.code, answer.verdicts("scale")) == (2, {"WRONG"})
    assert said.startswith("memcheck found in softmax_kernel (/repo/kernels/softmax/softmax_triton.py:95), 2 times: ")


@pytest.mark.nightly
def test_sanitizers_that_find_nothing_are_checks_that_passed(sanitize):
    answer, op = sanitize()

    assert answer.code == 0
    assert [check.case for check in op.accuracy[-4:]] == [
        "sanitize=memcheck", "sanitize=racecheck", "sanitize=initcheck", "sanitize=synccheck",
    ]  # fmt: skip


def test_a_machine_without_sanitizers_says_so(project, monkeypatch):
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    answer = project.check("--suite", "accuracy", "--op", "scale", "--sanitize")

    assert answer.code == 0
    assert project.run_record().ops[0].notes[-1].kind == "sanitizers_missing"


NOTHING = "Target application terminated before first instrumented API call"


@pytest.mark.nightly
@pytest.mark.parametrize("why", [pytest.param("Device not supported", marks=pytest.mark.nightly), NOTHING])
def test_a_sanitizer_that_watched_nothing_leaves_the_op_unchecked_and_not_wrong(sanitize, why):
    answer, op = sanitize("memcheck", f"========= Error: {why}. Please refer to the documentation.\n")
    (check,) = [check for check in op.accuracy if check.unchecked]

    assert answer.code != 2
    assert not any(check.failure for check in op.accuracy)
    assert sentence(check.unchecked) == f"memcheck watched nothing: {why}."


def test_what_a_log_says_of_the_process_is_no_finding():
    assert parse("========= Error: process didn't terminate successfully\n") == Counter()
