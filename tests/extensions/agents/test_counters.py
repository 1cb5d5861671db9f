"""What Nsight Compute prints, and what becomes of it. A script stands in for it: nothing here needs a GPU."""

import os
import sys
import textwrap

import pytest

from perfci.core.wording import sentence
from perfci.device.seam import CountedCalls
from perfci.extensions.agents import profile_task
from perfci.extensions.agents.profile_task import MARK, NAMES, count, count_by_ncu, read_counters

HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size","Device",'
    '"CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)
DENIED = (
    "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters on the "
    "target device 0. For instructions on enabling permissions and to get more information see "
    "https://developer.nvidia.com/ERR_NVGPUCTRPERM"
)
TIME, LATENCY = "gpu__time_duration.sum", "smsp__average_warp_latency_per_inst_issued.ratio"


def printed(*kernels):
    """What `ncu --csv --metrics` writes about kernels: (name, {metric: value as it is printed})."""
    lines = ["==PROF== Connected to process 4242 (/usr/bin/python3.11)"]
    lines += [
        f'==PROF== Profiling "{name}" - {at}: 0%....50%....100% - 9 passes' for at, (name, _) in enumerate(kernels)
    ]
    lines += ["==PROF== Disconnected from process 4242", HEADER]
    place = '"4242","python3.11","127.0.0.1"'
    where = '"1","7","(128, 1, 1)","(512, 1, 1)","0","9.0","Command line profiler metrics"'
    for at, (name, metrics) in enumerate(kernels):
        lines += [f'"{at}",{place},"{name}",{where},"{key}","","{value}"' for key, value in metrics.items()]
    return "\n".join(lines) + "\n"


def calls(*cases, alive=lambda: None, warm=False):
    return CountedCalls(cases, lambda case: lambda: None, ("python", "-m", "job"), warm, alive)


@pytest.fixture
def ncu(tmp_path, monkeypatch):
    """A program of that name, made of Python's lines, which have `options`, `metrics` and `log`."""

    def install(lines):
        path = tmp_path / "bin" / "ncu"
        path.parent.mkdir(exist_ok=True)
        start = """
            import sys, pathlib
            options = sys.argv[1:]
            after = lambda name: options[options.index(name) + 1]
            metrics, log = after("--metrics").split(","), pathlib.Path(after("--log-file"))
            """
        path.write_text(f"#!{sys.executable}\n{textwrap.dedent(start)}\n{textwrap.dedent(lines)}")
        path.chmod(0o755)
        monkeypatch.setenv("PATH", str(path.parent), prepend=os.pathsep)

    return install


# --- what is printed --------------------------------------------------------------------------------------------------


def test_counters_become_shares_bytes_and_ratios():
    metrics = {
        TIME: "115,232",
        LATENCY: "20",
        NAMES["occupancy"]: "61.30",
        NAMES["dram_bytes"]: "402,653,184",
        NAMES["l2_hit"]: "33.25",
        NAMES["sectors_load"]: "16",
        NAMES["stall_long_scoreboard"]: "15",
    }

    (counters,) = read_counters(printed((MARK, {TIME: "3,000"}), ("add", metrics)), ["n=1"]).values()

    assert counters["occupancy"] == pytest.approx(0.613)
    assert counters["dram_bytes"] == 402_653_184
    assert counters["l2_hit"] == pytest.approx(0.3325)
    assert counters["sectors_load"] == 16
    assert counters["stall_long_scoreboard"] == pytest.approx(0.75)


def test_kernels_of_one_call_are_summed_up_by_their_times():
    short = {TIME: "1,000", NAMES["occupancy"]: "20", NAMES["dram_bytes"]: "1,000"}
    long = {TIME: "3,000", NAMES["occupancy"]: "60", NAMES["dram_bytes"]: "5,000"}

    counters = read_counters(printed((MARK, {TIME: "1"}), ("a", short), ("b", long)), ["n=1"])["n=1"]

    assert counters["occupancy"] == pytest.approx(0.5)
    assert counters["dram_bytes"] == 6000


def test_marks_tell_the_cases_apart():
    one, two = ({NAMES["l1_hit"]: value} for value in ("10", "90"))
    text = printed(("early", one), (MARK, {TIME: "1"}), ("k", one), (MARK, {TIME: "1"}), ("k", two), ("k", two))

    assert read_counters(text, ["n=1", "n=2"]) == {"n=1": {"l1_hit": 0.1}, "n=2": {"l1_hit": 0.9}}


def test_metrics_that_this_chip_lacks_are_left_out():
    text = printed((MARK, {TIME: "1"}), ("k", {NAMES["tensor"]: "n/a", NAMES["l1_hit"]: "50", NAMES["l2"]: "nan"}))

    assert read_counters(text, ["n=1"]) == {"n=1": {"l1_hit": 0.5}}


def test_bank_conflicts_are_a_share_of_the_accesses():
    metrics = {
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": "300",
        "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "1,000",
    }

    assert read_counters(printed((MARK, {TIME: "1"}), ("k", metrics)), ["n=1"])["n=1"]["bank_conflicts"] == 0.3


def test_a_report_of_no_kernels_has_no_counters():
    assert read_counters("==WARNING== No kernels were profiled.\n", ["n=1"]) == {}
    assert read_counters("", ["n=1"]) == {}


@pytest.mark.torch
def test_a_mark_has_the_name_of_the_timers_flush():
    from perfci.device.timers import NAME

    assert MARK == NAME


# --- the program ------------------------------------------------------------------------------------------------------


def test_calls_are_counted_by_a_process_that_makes_them_again(ncu, tmp_path):
    (tmp_path / "printed").write_text(printed((MARK, {TIME: "1"}), ("k", {NAMES["l1_hit"]: "50"})))
    ncu(f"""
        assert options[-3:] == ["python", "-m", "job"], options
        assert after("--clock-control") == "none" and after("--cache-control") == "all"
        log.write_text(pathlib.Path({str(tmp_path / "printed")!r}).read_text())
        """)

    counted = count_by_ncu(calls("n=1"))

    assert (counted.source, counted.note) == ("ncu", None)
    assert counted.cases == {"n=1": {"l1_hit": 0.5}}


def test_a_warm_call_finds_what_the_one_before_left(ncu, tmp_path):
    (tmp_path / "printed").write_text(printed((MARK, {TIME: "1"}), ("k", {NAMES["l1_hit"]: "50"})))
    ncu(f"""
        assert after("--cache-control") == "none"
        log.write_text(pathlib.Path({str(tmp_path / "printed")!r}).read_text())
        """)

    assert count_by_ncu(calls("n=1", warm=True)).source == "ncu"


def test_without_ncu_there_are_no_counters_and_a_word_why(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(profile_task, "FURTHER", "")

    counted = count_by_ncu(calls("n=1"))

    assert (counted.source, counted.cases) == ("compiled", {})
    assert counted.note is not None
    assert counted.note.kind == "counters_no_ncu"


def test_an_ncu_that_lacks_a_metric_is_asked_for_the_others(ncu, tmp_path):
    (tmp_path / "printed").write_text(printed((MARK, {TIME: "1"}), ("k", {NAMES["l1_hit"]: "50"})))
    ncu(f"""
        lacking = {NAMES["tensor"]!r}, {NAMES["stall_gmma"]!r}
        if any(name in metrics for name in lacking):
            log.write_text("==PROF== Connected to process 1\\n"
                "==ERROR== Failed to find metric regex:^sm__pipe_tensor_cycles_active\\\\.(sum|min|max|avg)$\\n"
                f"==ERROR== Failed to find metric {{lacking[1]}}\\n")
            sys.exit(1)
        assert {NAMES["l1_hit"]!r} in metrics
        log.write_text(pathlib.Path({str(tmp_path / "printed")!r}).read_text())
        """)

    assert count_by_ncu(calls("n=1")).cases == {"n=1": {"l1_hit": 0.5}}


@pytest.mark.parametrize(
    ("lines", "code", "kind", "words"),
    [
        (f"==PROF== Connected to process 1 (python)\n{DENIED}\n", 1, "counters_refused", "ERR_NVGPUCTRPERM"),
        ("==ERROR== Cuda driver is not compatible.\n", 1, "counters_failed", "Cuda driver is not compatible"),
        ("", 9, "counters_failed", "exit code 9"),
    ],
)
def test_an_ncu_that_fails_is_quoted_or_named_by_its_exit_code(ncu, lines, code, kind, words):
    ncu(f"log.write_text({lines!r}); sys.exit({code})")

    counted = count_by_ncu(calls("n=1"))

    assert counted.note is not None
    assert counted.note.kind == kind
    assert words in sentence(counted.note)


def test_an_ncu_that_hangs_is_ended(ncu, monkeypatch):
    monkeypatch.setattr(profile_task, "LIMIT_S", 0.3)
    ncu("""
        import time
        time.sleep(60)
        """)
    heard = []

    counted = count_by_ncu(calls("n=1", alive=lambda: heard.append(1)))

    assert heard
    assert counted.note is not None
    assert counted.note.kind == "counters_failed"


@pytest.mark.cuda
def test_counters_of_an_addition_are_those_of_its_bytes_or_there_is_a_reason(tmp_path):
    import torch

    from perfci.device.cuda import CudaDevice

    program = tmp_path / "calls.py"
    program.write_text(
        "import torch\n"
        "from perfci.device.cuda import CudaDevice\n"
        "device, x = CudaDevice(), torch.ones(1 << 26, device='cuda')\n"
        "for _ in range(2):\n"
        "    device.mark_call(lambda: x + 1)\n"
    )
    command = (sys.executable, str(program))
    again = CountedCalls(("first", "second"), lambda _: torch.cuda.synchronize, command, False, int)
    found = count(CudaDevice(), again)

    if found.note is not None:  # no ncu here, or no right to counters
        assert found.note.kind in {"counters_no_ncu", "counters_refused", "counters_failed"}
        return
    assert list(found.cases) == ["first", "second"]
    for counted in found.cases.values():
        assert counted["dram_bytes"] == pytest.approx(2 * 4 * (1 << 26), rel=0.15)
        assert 0 < counted["occupancy"] <= 1
        assert counted["dram"] > 0.5
