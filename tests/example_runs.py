"""Runs and judgements as a real device would give them, made up with fixed seeds: for tests that read, not measure."""

import functools
import math
import random
from dataclasses import replace

from perfci.core.model import (
    AccuracyCase,
    ArmBlock,
    Base,
    BaseArm,
    Baseline,
    BaselineBlock,
    BaselineCase,
    BaselineRun,
    Block,
    Comparison,
    CompiledKernel,
    Device,
    DeviceState,
    DuelWhat,
    Environment,
    ErrorStats,
    Identity,
    Interval,
    Judgement,
    Judgements,
    KernelBinary,
    LaunchIdentity,
    Limits,
    OpRun,
    PerformanceCase,
    Plan,
    PlannedBase,
    PlannedOp,
    Reason,
    Run,
    Screen,
    Static,
    StaticCase,
    StaticOp,
    Suite,
    Summary,
    Verdict,
)
from perfci.judge import judge
from perfci.ops.spec import case_id, grid
from perfci.thresholds.case import CaseThresholds
from perfci.thresholds.limits import Thresholds

HOSTILE = (
    "a|b\n# heading\r\n`code` ```` <script>alert(1)</script> ![x](http://evil.example/x.png) [y](javascript:z) "
    "@all #1 !2 ~bug www.evil.example \x1b[31mred\x1b[0m \x00 \u202eright-to-left \\ **bold** <!-- $x$ &lt; __init__"
)
"""One of everything that may break a table, inject markup, call people or fetch pictures."""

SENTENCES = {
    "example_right": "All {checks} accuracy checks are within tolerance.",
    "example_same": "Its time changed by {change:+%}, within the allowed 2.0 %.",
    "example_slower": "It is {change:%} slower than its baseline, beyond the allowed {margin:%}, both times anew.",
    "example_faster": "Its time changed by {change:+%}, beyond doubt.",
    "example_disagreed": "It looked {change:%} slower at first, and only one of two fresh processes agrees.",
    "example_judged_by_screen": "Judged against stored baselines, a margin of {margin:%} inside the null hypothesis.",
    "example_power_cap": "The power cap held the clock down in {blocks} blocks.",
    "example_wrong": "The largest error is {max_abs:n} at {index}, beyond the tolerance of {atol:n}.",
    "example_timed_output_wrong": "An output of the timed launches is off by {max_abs:n}, beyond {atol:n}.",
    "example_unchecked": "Triton's interpreter computes {dtype} matrix products wrongly, so it is left to a GPU.",
    "example_too_slow": "Its speedup is at most {high:n} with certainty, below the target of {target:n}.",
    "example_noisy": "{count} of {blocks} blocks scatter by more than {limit:%}.",
    "example_removed": "The baseline has {case}, this revision has not.",
    "example_new": "Nothing is stored to compare it with; `perfci accept` stores it.",
    "example_raised": "It raised {error}: {message}",
    "example_no_accelerator": "Speed was not measured: there is no accelerator here.",
    "example_stopped": "Only {blocks} blocks were measured before the run was stopped.",
}
"""A separate catalogue, so that a reworded sentence does not affect these tests."""

DTYPES = ("float32", "float16", "bfloat16")


def environment(**changes) -> Environment:
    device = Device(
        kind="cuda",
        name="NVIDIA H200",
        key="nvidia-h200",
        uuid="GPU-0000",
        driver="580.65.06",
        runtime="CUDA 13.0",
        processors=132,
        l2_bytes=60 * 2**20,
        memory_bytes=141 * 2**30,
    )
    fields = {
        "device": device,
        "timer": "activity",
        "python": "3.11.7",
        "packages": {"torch": "2.13.0", "triton": "3.7.1"},
        "host": "runner-1",
        "system": "Linux 6.8",
        "commit": "0123456789abcdef0123456789abcdef01234567",
        "branch": "main",
    }
    return Environment(**(fields | changes))


def cpu_environment() -> Environment:
    cpu = Device(kind="cpu", name="CPU with Triton's interpreter", key="cpu")
    return environment(device=cpu, timer=None, packages={"torch": "2.13.0+cpu", "triton": "3.7.1"})


def summary(median_us: float, rng: random.Random, noise: float = 0.01, launches: int = 30) -> Summary:
    """A block's launches: log-normal around the median, with a tail to the right."""
    us = sorted(median_us * math.exp(rng.gauss(0, noise) + (rng.random() > 0.97) * 0.1) for _ in range(launches))
    mean = sum(us) / launches
    at = lambda share: us[round(share * (launches - 1))]  # noqa: E731
    spread = (sum((u - mean) ** 2 for u in us) / (launches - 1)) ** 0.5
    fence = 1.5 * (at(0.75) - at(0.25))
    return Summary(
        launches=launches,
        median_us=at(0.5),
        min_us=us[0],
        p05_us=at(0.05),
        p25_us=at(0.25),
        p75_us=at(0.75),
        p95_us=at(0.95),
        max_us=us[-1],
        mean_us=mean,
        rsd=spread / mean,
        outliers=sum(u > at(0.75) + fence or u < at(0.25) - fence for u in us),
    )


def block(
    index: int, arms: dict[str, float], rng: random.Random, process: int = 0, started_s: float | None = None
) -> Block:
    """`arms` are medians in microseconds; the whole block runs a little fast or slow."""
    pace = math.exp(rng.gauss(0, 0.006))
    timed = {name: ArmBlock(summary(us * pace, rng), us * 1.08, 21.0, 1) for name, us in arms.items()}
    shifts = (
        {"kernel/reference": math.log(arms["kernel"] / arms["reference"])}
        if {"kernel", "reference"} <= arms.keys()
        else {}
    )
    state = DeviceState(
        sm_clock_mhz=rng.choice((1980, 1965, 1755)),
        memory_clock_mhz=3201,
        temperature_c=rng.randint(41, 58),
        power_w=round(rng.uniform(180, 610), 1),
        throttle=("power_cap",) if rng.random() > 0.7 else (),
        foreign_processes=0,
    )
    started = 2.5 + 0.4 * index + 9.0 * process + rng.random() * 0.2 if started_s is None else started_s
    return Block(index, process, started, timed, shifts, state)


def performance_case(
    case: str,
    kernel_us: float,
    speedup: float = 1.5,
    *,
    blocks: int = 8,
    processes: int = 1,
    base: bool = False,
    seed: int = 1,
) -> PerformanceCase:
    rng = random.Random(f"{case} {seed}")
    arms = {"kernel": kernel_us, "reference": kernel_us * speedup}
    arms |= {"base": kernel_us * 0.99} if base else {}
    dtype = case.rpartition("dtype=")[2] or "float16"
    return PerformanceCase(
        case=case,
        bytes_moved=round(kernel_us * 3.9e6) if not case.startswith("m=") else None,
        flops=round(kernel_us * 4e8) if case.startswith("m=") else None,
        dtype=dtype,
        compile_s=0.82,
        footprint_bytes=round(kernel_us * 4e6),
        compiled=(CompiledKernel("softmax_kernel", 32, 0, 4096, 4, 3, "BLOCK=1024"),),
        errors=ErrorStats(1000, 4.9e-4, 1.1e-5, 9.1e-4, 2.2e-4, 6e-6, 2e-5, 1.2e-4, 3e-5, (7, 100)),
        blocks=tuple(block(i, arms, rng, process) for process in range(processes) for i in range(blocks)),
    )


def accuracy_case(case: str, values: str = "normal", **changes) -> AccuracyCase:
    dtype = case.rpartition("dtype=")[2]
    step = {"float32": 1.2e-7, "float16": 9.8e-4}.get(dtype, 7.8e-3)
    check = {
        "layout": "contiguous",
        "seed": 1234,
        "rtol": 2 * step,
        "atol": step / 10,
        "errors": ErrorStats(
            7161, step / 2, step / 40, step, step / 9, step / 60, step / 20, step / 4, step / 15, (3, 17), step / 9, 0.2
        ),
        "reference_errors": ErrorStats(
            7161, step / 2.1, step / 41, step, step / 9, step / 60, step / 20, step / 4, step / 16, (5, 9)
        ),
    }
    return AccuracyCase(case=case, values=values, **(check | changes))


def comparison(op: str, measured: PerformanceCase, change: float | None = 0.001, *, speedup: float = 1.5) -> Comparison:
    """`change` None: nothing is stored to compare with."""
    kernel = sorted(b.arms["kernel"].time.median_us for b in measured.blocks)[len(measured.blocks) // 2]
    processes = sorted({b.process for b in measured.blocks}) if change is not None else []
    screens = tuple(
        Screen(
            process=p,
            blocks=8,
            baseline_blocks=24,
            change=Interval(change or 0, (change or 0) - 0.006, (change or 0) + 0.006),
            p_slower=0.0004 if (change or 0) > 0.02 else 0.62,
            p_faster=0.0004 if (change or 0) < -0.02 else 0.71,
            beta=0.84,
            correlation=0.91,
            margin=0.02,
            difference_us=kernel * (change or 0),
            reference_change=0.002,
            smallest_p=9.5e-8,
        )
        for p in processes
    )
    return Comparison(
        op=op,
        case=measured.case,
        screens=screens,
        known=change is not None,
        speedup=Interval(speedup, speedup * 0.985, speedup * 1.015),
        kernel_us=kernel,
        reference_us=kernel * speedup,
        baseline_us=None if change is None else kernel / (1 + change),
    )


def judgement(
    op: str, case: str | None, verdict: Verdict, reason: Reason, seen: Comparison | None = None, **changes
) -> Judgement:
    suite = changes.pop("suite", Suite.PERFORMANCE)
    return Judgement(op, suite, case, verdict, (reason, *changes.pop("more", ())), seen, **changes)


def run(ops, environment=None, **changes) -> Run:
    environment = environment or globals()["environment"]()
    planned = tuple(
        PlannedOp(op.op, tuple({a.case: None for a in op.accuracy}), tuple(p.case for p in op.performance))
        for op in ops
    )
    fields = {
        "id": "20260102-030405-ab12",
        "created": "2026-01-02T03:04:05Z",
        "perfci": "0.1.0",
        "command": "perfci check",
        "plan": Plan(planned, seed=20260102, budget_s=1.0, device=environment.device.kind),
        "wall_s": 48.2,
        "limits": Limits(4180.0, {"float16": 741.0, "bfloat16": 760.0}) if environment.timer else Limits(),
    }
    return Run(environment=environment, ops=tuple(ops), **(fields | changes))


def reason(kind: str, **facts) -> Reason:
    return Reason(kind, facts)


@functools.cache
def small() -> tuple[Run, Judgements]:
    """One op, two cases: one as fast as ever, one slower, seen again in a fresh process."""
    cases = [case_id(c) for c in grid(rows=[4096], cols=[512, 32768], dtype=["float16"])]
    fine, slow = performance_case(cases[0], 4.93, 1.62), performance_case(cases[1], 212.0, 1.1, processes=2)
    checks = tuple(accuracy_case(f"rows={rows},cols=1023,dtype={dtype}") for dtype in DTYPES for rows in (0, 1, 7))
    op = OpRun("softmax", checks, (fine, slow), verify_s=3.1, measure_s=4.2)
    rows = (
        judgement("softmax", None, Verdict.PASS, reason("example_right", checks=len(checks)), suite=Suite.ACCURACY),
        judgement(
            "softmax",
            fine.case,
            Verdict.PASS,
            reason("example_same", change=0.001),
            comparison("softmax", fine, speedup=1.62),
        ),
        judgement(
            "softmax",
            slow.case,
            Verdict.REGRESSED,
            reason("example_slower", change=0.041, margin=0.02),
            comparison("softmax", slow, 0.041, speedup=1.1),
            p_adjusted=0.0008,
        ),
    )
    return run([op]), Judgements(rows, notes=(reason("example_judged_by_screen", margin=0.02),))


@functools.cache
def full() -> tuple[Run, Judgements]:
    """Four ops, every verdict that a merge request may meet, and every kind of trouble in accuracy."""
    ops, rows = zip(_softmax(), _matmul(), _broadcast(), _bias_relu(), strict=True)
    notes = (reason("example_judged_by_screen", margin=0.02), reason("example_power_cap", blocks=31))
    return run(ops), Judgements(tuple(row for part in rows for row in part), notes=notes)


def _softmax():
    names = [case_id(c) for c in grid(rows=[4096], cols=[512, 1024, 4096, 32768], dtype=DTYPES)]
    cases = [performance_case(name, 4.2 * 1.45**i, 1.62, processes=1 + (i in {4, 7})) for i, name in enumerate(names)]
    changes = {4: 0.041, 7: 0.024}
    told = {
        4: (Verdict.REGRESSED, "example_slower"),
        7: (Verdict.INCONCLUSIVE, "example_disagreed"),
        9: (Verdict.IMPROVED, "example_faster"),
    }
    rows = [
        judgement(
            "softmax",
            case.case,
            told.get(i, (Verdict.PASS,))[0],
            reason(
                told.get(i, (0, "example_same"))[1], change=changes.get(i, -0.062 if i == 9 else 0.001), margin=0.02
            ),
            comparison("softmax", case, changes.get(i, -0.062 if i == 9 else 0.001), speedup=1.62),
        )
        for i, case in enumerate(cases)
    ]
    checks = [
        accuracy_case(f"rows=7,cols={n},dtype={d}", v)
        for d in DTYPES
        for n in (1, 1023)
        for v in ("normal", "nan", "inf")
    ]
    rows.insert(
        0, judgement("softmax", None, Verdict.PASS, reason("example_right", checks=len(checks)), suite=Suite.ACCURACY)
    )
    return OpRun("softmax", tuple(checks), tuple(cases), tuned="sha256:5f2c", verify_s=11.8, measure_s=14.2), rows


def _matmul():
    names = [case_id({"m": n, "n": n, "k": n, "dtype": d}) for n in (1024, 4096, 8192) for d in ("float16", "bfloat16")]
    cases = [performance_case(name, 14.0 * 5**i, 0.93) for i, name in enumerate(names[:4])]
    wrong = PerformanceCase(
        case=names[4], dtype="float16", failure=reason("example_timed_output_wrong", max_abs=3.2, atol=0.01)
    )
    cases = [*cases, wrong]
    failed = reason("example_wrong", max_abs=3.2, atol=0.01, index="(4095, 17)")
    checks = [
        accuracy_case("m=1023,n=1024,k=1025,dtype=float16", "normal", failure=failed, fresh=True),
        accuracy_case("m=1023,n=1024,k=1025,dtype=float32", "normal"),
        accuracy_case(
            "m=128,n=128,k=128,dtype=bfloat16", errors=None, unchecked=reason("example_unchecked", dtype="bfloat16")
        ),
    ]
    rows = [
        judgement("matmul", None, Verdict.WRONG, failed, suite=Suite.ACCURACY),
        judgement("matmul", checks[0].case, Verdict.WRONG, failed, suite=Suite.ACCURACY),
        judgement("matmul", wrong.case, Verdict.WRONG, wrong.failure),
        judgement(
            "matmul",
            names[0],
            Verdict.TOO_SLOW,
            reason("example_too_slow", target=1.0, high=0.944),
            comparison("matmul", cases[0], speedup=0.93),
        ),
        *(
            judgement(
                "matmul",
                c.case,
                Verdict.PASS,
                reason("example_same", change=0.001),
                comparison("matmul", c, speedup=0.93),
                more=(reason("example_noisy", count=6, blocks=8, limit=0.05),),
            )
            for c in cases[1:4]
        ),
        judgement("matmul", names[5], Verdict.REMOVED, reason("example_removed", case=names[5])),
    ]
    return OpRun("matmul", tuple(checks), tuple(cases), verify_s=20.5, measure_s=9.9), rows


def _broadcast():
    cases = [
        performance_case(case_id({"rows": 2**n, "cols": 4096, "dtype": "float16"}), 2.0**n / 512, 1.21)
        for n in (10, 13, 16)
    ]
    rows = [
        judgement(
            "broadcast", c.case, Verdict.NEW, reason("example_new"), comparison("broadcast", c, None, speedup=1.21)
        )
        for c in cases
    ]
    rows.append(judgement("broadcast", None, Verdict.PASS, reason("example_right", checks=212), suite=Suite.ACCURACY))
    return OpRun(
        "broadcast",
        (accuracy_case("rows=1,cols=1,dtype=float16"),),
        tuple(cases),
        verify_s=4.0,
        measure_s=3.3,
    ), rows


def _bias_relu():
    broken = reason(
        "example_raised",
        error="RuntimeError",
        message="CUDA error: an illegal memory access was encountered\n" + "  at bias_relu.py:31\n" * 12,
    )
    return OpRun("bias_relu", failure=broken), [
        judgement("bias_relu", None, Verdict.ERROR, broken, suite=Suite.ACCURACY)
    ]


def without_baseline() -> tuple[Run, Judgements]:
    case = performance_case("rows=4096,cols=512,dtype=float16", 4.93)
    rows = (judgement("softmax", case.case, Verdict.NEW, reason("example_new"), comparison("softmax", case, None)),)
    return run([OpRun("softmax", performance=(case,))]), Judgements(rows)


def on_cpu() -> tuple[Run, Judgements]:
    """Accuracy only: there is no accelerator, so nothing is timed."""
    checks = tuple(accuracy_case(f"rows={n},cols=7,dtype=float32") for n in (0, 1, 1023))
    op = OpRun("softmax", checks, unmeasured=reason("example_no_accelerator"), verify_s=2.2)
    rows = (judgement("softmax", None, Verdict.PASS, reason("example_right", checks=3), suite=Suite.ACCURACY),)
    return run([op], cpu_environment()), Judgements(rows, notes=(reason("example_no_accelerator"),))


def stopped() -> tuple[Run, Judgements]:
    case = performance_case("rows=4096,cols=512,dtype=float16", 4.93, blocks=2)
    rows = (
        judgement(
            "softmax", case.case, Verdict.INCONCLUSIVE, reason("example_stopped", blocks=2), comparison("softmax", case)
        ),
    )
    return run([OpRun("softmax", performance=(case,))], stopped="SIGINT", wall_s=None), Judgements(rows)


def failed_op() -> tuple[Run, Judgements]:
    op, rows = _bias_relu()
    return run([op]), Judgements(tuple(rows))


def hostile() -> tuple[Run, Judgements]:
    """Every text that comes from a kernel tries to break the report."""
    case = performance_case(HOSTILE, 5.0)
    failed = reason("example_raised", error=HOSTILE, message=HOSTILE + "A" * 10_000)
    check = accuracy_case(HOSTILE, HOSTILE, failure=failed, layout=HOSTILE)
    op = OpRun(HOSTILE, (check,), (case,), notes=(failed,), tuned=HOSTILE)
    rows = (
        judgement(HOSTILE, HOSTILE, Verdict.ERROR, failed, comparison(HOSTILE, case)),
        judgement(HOSTILE, HOSTILE, Verdict.WRONG, failed, suite=Suite.ACCURACY),
    )
    hurt = environment(branch=HOSTILE, host=HOSTILE, packages={HOSTILE: HOSTILE}, variables={HOSTILE: HOSTILE})
    return run([op], hurt, command=HOSTILE), Judgements(rows, notes=(failed,))


@functools.cache
def large(ops: int = 10, cases: int = 20) -> tuple[Run, Judgements]:
    runs, rows = [], []
    for o in range(ops):
        measured = [
            performance_case(f"rows={2 ** (c % 14)},cols={c},dtype=float16", 5.0 + c, seed=o) for c in range(cases)
        ]
        runs.append(OpRun(f"op{o}", performance=tuple(measured)))
        rows += [
            judgement(
                f"op{o}",
                m.case,
                Verdict.REGRESSED if c == 7 else Verdict.PASS,
                reason("example_same", change=0.001),
                comparison(f"op{o}", m),
            )
            for c, m in enumerate(measured)
        ]
    return run(runs), Judgements(tuple(rows))


@functools.cache
def large_duelled(ops: int = 10, cases: int = 50) -> tuple[Run, Judgements]:
    """A merge request in which every case was timed side by side with the base, and one of each op is slower."""
    runs = []
    for o in range(ops):
        names = [f"rows={2 ** (c % 14)},cols={c},dtype=float16" for c in range(cases)]
        timed = tuple(
            duelled_case(name, 5.0 + c, *((0.08, (12, 12)) if c == 7 else (0.0, (4,)))) for c, name in enumerate(names)
        )
        runs.append(OpRun(f"op{o}", performance=timed))
    planned = tuple(PlannedOp(op.op, (), _names(op), base=PlannedBase(performance=_names(op))) for op in runs)
    plan = Plan(planned, 1, 1.0, "cuda", base=BASE, duel=DuelWhat.CHANGED, duel_family=ops * cases)
    return judged(run(runs, plan=plan))


@functools.cache
def long_names() -> tuple[Run, Judgements]:
    """Case ids of 60, 120 and 300 characters, one arm missing, a base arm, and a case that was never timed."""
    names = [
        "batch=16,heads=32,sequence=4096,head_dim=128,causal=True,dtype=bfloat16",
        ",".join(f"axis{i}={10**i}" for i in range(11)),
        "note=" + "x" * 300,
        "rows=1",
    ]
    cases = [
        performance_case(name, 9.0 * (i + 1), base=i == 0, processes=1 + 2 * (i == 1))
        for i, name in enumerate(names[:3])
    ]
    kernel_only = tuple(block(i, {"kernel": 12.0}, random.Random(i)) for i in range(6))
    cases.append(PerformanceCase(case="arm=alone", blocks=kernel_only))
    rows = [
        judgement("attention", c.case, Verdict.PASS, reason("example_same", change=0.001), comparison("attention", c))
        for c in cases[:3]
    ]
    rows.append(judgement("attention", "arm=alone", Verdict.SUSPECT, reason("example_stopped", blocks=6)))
    return run([OpRun("attention", performance=(*cases, PerformanceCase(case="rows=1")))]), Judgements(tuple(rows))


# --- against a base revision, and compiled without a device: with the real rules and the real sentences ---------------

BASE = Base(
    commit="89abcdef0123456789abcdef0123456789abcdef",
    how="merge_base",
    name="origin/main",
    changed_rules=("thresholds/softmax.yaml",),
)


def duelled_case(
    case: str,
    base_us: float,
    change: float,
    blocks: tuple[int, ...],
    *,
    same: bool | None = False,
    noise: float = 0.003,
    spread: tuple[float, ...] = (),
    changes: tuple[Reason, ...] = (),
    modes: tuple[float, ...] = (),
    activities: int = 1,
    added_us: float = 0.0,
) -> PerformanceCase:
    """A case timed beside the base: `change` in the middle, `blocks` of each process.

    spread: what each process adds to the shift, log scale; added_us: time between the kernels of a head's launch.
    """
    rng = random.Random(f"duel {case}")
    made = []
    for process, count in enumerate(blocks):
        offset = spread[process] if spread else 0.0
        for index in range(count):
            d = math.log1p(change) + offset + rng.gauss(0, noise)
            arms = {"kernel": base_us * math.exp(d), "reference": base_us * 1.6, "base": base_us}
            timed = block(index, arms, rng, process)
            arms = {
                name: replace(
                    arm,
                    activities=activities,
                    span_us=arm.span_us + (activities - 1) * 9.0 + (added_us if name == "kernel" else 0.0),
                    modes_us=modes if name == "kernel" else (),
                )
                for name, arm in timed.arms.items()
            }
            made.append(replace(timed, arms=arms, shifts={**timed.shifts, "kernel/base": d}))
    identity = identity_of(case)
    facts = performance_case(case, base_us, 1.6, blocks=0)
    base = BaseArm(None if same else identity_of(case, warps=4), same, changes, duelled=bool(blocks))
    return replace(facts, blocks=tuple(made), identity=identity, peak_bytes=round(base_us * 5e6), base=base)


def identity_of(case: str, warps: int = 8) -> Identity:
    launch = LaunchIdentity(
        "_softmax_kernel", "5f2c9a01", (4096, 1, 1), warps, 3, {"x": "#0 float16[4096,1024](1024,1)@16", "cols": "1024"}
    )
    return Identity(("aten.empty_like.default(#0 float16[4096,1024](1024,1)@16)",), (launch,), "c0ffee")


def stored(op: str, times_us: dict[str, tuple[float, float]]) -> Baseline:
    """Three accepted runs of eight blocks, noise 0.6 %; times_us: of kernel and reference."""
    rng = random.Random(op)
    runs = tuple(BaselineRun(f"run{n}", "2026-01-01T00:00:00Z", environment()) for n in range(3))
    cases = tuple(
        BaselineCase(
            case,
            tuple(
                BaselineBlock(
                    f"run{n}",
                    kernel * math.exp(rng.gauss(0, 0.006)),
                    reference * math.exp(rng.gauss(0, 0.006)),
                    math.log(kernel / reference),
                    None,
                    1,
                )
                for n in range(3)
                for _ in range(8)
            ),
        )
        for case, (kernel, reference) in times_us.items()
    )
    return Baseline(op, "nvidia-h200", "activity", runs, cases)


def judged(run: Run, *baselines: Baseline, thresholds: Thresholds | None = None) -> tuple[Run, Judgements]:
    limits = thresholds or Thresholds()
    return run, judge(run, {one.op: one for one in baselines}, limits)


@functools.cache
def duelled() -> tuple[Run, Judgements]:
    """A merge request that changes softmax and matmul, and how softmax is judged, with every result of a duel."""
    softmax, matmul, gelu, relu = _duelled_softmax(), _duelled_matmul(), _newer_op(), _control()
    broadcast = tuple(case_id({"rows": 2**n, "cols": 4096, "dtype": "float16"}) for n in (10, 13, 16))
    performance = {
        **{op.op: _names(op) for op in (softmax, matmul, gelu)},
        "bias_relu": (*_names(relu), "rows=4096,cols=4096,dtype=float16"),
        "broadcast": broadcast,
    }
    ops = (relu, OpRun("broadcast"), gelu, matmul, softmax)
    base = {
        "bias_relu": PlannedBase(same=True, performance=performance["bias_relu"]),
        "broadcast": PlannedBase(same=True, performance=broadcast),
        "gelu": PlannedBase(failure=reason("base_lacks_op", op="gelu", base="origin/main")),
        "matmul": PlannedBase(
            changed=("kernels/matmul/matmul_triton.py", "kernels/_launch.py"),
            performance=_names(matmul),
            apart=reason("registers_operators", namespace="kernels"),
        ),
        "softmax": PlannedBase(
            changed=("kernels/softmax/softmax_triton.py", "kernels/softmax/softmax_performance.py"),
            performance=_names(softmax),
        ),
    }
    planned = tuple(
        PlannedOp(
            op.op,
            tuple({check.case: None for check in op.accuracy}) or ("rows=7,cols=1023,dtype=float16",),
            performance[op.op],
            base=base[op.op],
            audit=_names(op)[:1] if op.op == "bias_relu" else (),
        )
        for op in ops
    )
    plan = Plan(
        planned, 20260102, 1.0, "cuda", base=BASE, duel=DuelWhat.CHANGED, skip_unchanged=True, duel_family=14,
        removed=("layernorm",),
    )  # fmt: skip
    record = run(ops, plan=plan, command="perfci check --against origin/main")
    return judged(
        record,
        stored("matmul", {_names(matmul)[0]: (0.96 * 140.0, 224.0), _names(matmul)[1]: (345.0, 552.0)}),
        stored("softmax", {_names(softmax)[-1]: (60.0, 96.0)}),
        stored("gelu", {_names(gelu)[0]: (9.0, 13.5)}),
    )


def _names(op: OpRun) -> tuple[str, ...]:
    return tuple(case.case for case in op.performance)


def _duelled_softmax() -> OpRun:
    code = (
        reason("launch_changed", kernel="_softmax_kernel", what="warps", before="4", after="8"),
        reason("code_changed", kernel="_softmax_kernel", before="5f2c9a01", after="77ab0c3d"),
    )
    named = [case_id(c) for c in grid(rows=[4096], cols=[256, 512, 1024, 2048, 4096, 8192, 32768], dtype=["float16"])]
    unknown = reason("captured_opaque", what="a CUDA graph", file="softmax_triton.py", line=31)
    cases = (
        duelled_case(named[0], 4.0, 0.012, (12,), changes=code, noise=0.006),
        duelled_case(named[1], 4.0, 0.002, (4,), changes=code),
        duelled_case(named[2], 16.0, 0.041, (12, 12), changes=code),
        duelled_case(
            named[3], 16.0, 0.016, (12, 12, 12, 12), changes=code, noise=0.008, spread=(0.004, -0.006, 0.002, -0.001)
        ),
        duelled_case(
            named[4], 16.0, 0.001, (4,), same=None, changes=(unknown,), modes=(15.6, 17.1), activities=2, added_us=1.5
        ),
        duelled_case(named[5], 70.0, 0.0, (), same=True),
        duelled_case(named[6], 140.0, -0.022, (12, 12, 12, 12), changes=code),
    )
    broken = performance_case("rows=16384,cols=1024,dtype=float16", 60.0, 1.6)
    why = reason(
        "base_raised", case=broken.case, error="OutOfResources", message="shared memory, 262144 of 232448 bytes",
        file="softmax_triton.py", line=48,
    )  # fmt: skip
    broken = replace(broken, identity=identity_of(broken.case), base=BaseArm(failure=why))
    checks = tuple(accuracy_case(f"rows={n},cols=1023,dtype=float16", fresh=n == 7) for n in (0, 1, 7))
    return OpRun("softmax", checks, (*cases, broken), verify_s=3.1, measure_s=61.0)


def _duelled_matmul() -> OpRun:
    named = [case_id({"m": n, "n": n, "k": n, "dtype": "float16"}) for n in (2048, 4096)]
    changed = (reason("code_changed", kernel="_matmul_kernel", before="0b1d77e2", after="9c40aa15"),)
    drifted = duelled_case(named[0], 140.0, 0.0, (4, 12, 12), changes=changed, noise=0.002)
    return OpRun(
        "matmul",
        (accuracy_case("m=128,n=128,k=128,dtype=float16", fresh=True),),
        (drifted, duelled_case(named[1], 345.0, 0.004, (4,), changes=changed, noise=0.001)),
        verify_s=2.0,
        measure_s=30.0,
    )


def _newer_op() -> OpRun:
    case = performance_case("rows=4096,cols=1024,dtype=float16", 9.0)
    return OpRun("gelu", (accuracy_case("rows=7,cols=1023,dtype=float16"),), (case,), verify_s=1.0, measure_s=1.0)


def _control() -> OpRun:
    """An op with files that are the base's: one case is duelled as a control, and comes out slower."""
    control = duelled_case("rows=4096,cols=1024,dtype=float16", 16.0, 0.04, (12, 12), same=True)
    return OpRun("bias_relu", performance=(control,), measure_s=40.0)


@functools.cache
def compiled() -> tuple[Run, Judgements]:
    """Kernels compiled for two targets without a device, against a base; registers may grow by a tenth."""
    offline = environment(device=Device("offline", "no device", "offline"), timer=None)
    planned = tuple(
        PlannedOp(op, performance=_STATIC_CASES[op], base=base)
        for op, base in {
            "attention": PlannedBase(changed=("kernels/attention/attention_triton.py",)),
            "broadcast": PlannedBase(changed=("kernels/broadcast/broadcast_triton.py",)),
            "matmul": PlannedBase(same=True),
            "softmax": PlannedBase(changed=("kernels/softmax/softmax_triton.py",)),
        }.items()
    )
    plan = Plan(
        planned, 20260102, 1.0, "offline", suites=(Suite.COMPILED,), base=replace(BASE, changed_rules=()),
        duel=DuelWhat.CHANGED, skip_unchanged=True,
    )  # fmt: skip
    targets = ("sm_90", "gfx942")
    static = Static(
        targets,
        "triton 3.7.1, torch 2.13.0",
        tuple(_static_op(op, target) for target in targets for op in _STATIC_CASES),
        tuple(_static_op(op, target, base=True) for target in targets for op in _STATIC_CASES if op != "matmul"),
    )
    record = run((), offline, plan=plan, static=static, command="perfci static --target sm_90,gfx942", wall_s=14.8)
    return judged(record, thresholds=Thresholds(CaseThresholds(registers=0.1)))


def hostile_change() -> tuple[Run, Judgements]:
    """Every text of a base revision, of an identity and of a compiled kernel tries to break the report."""
    loud = reason("example_raised", error=HOSTILE, message=HOSTILE)
    case = duelled_case(HOSTILE, 16.0, 0.041, (12, 12), changes=(loud,))
    launch = LaunchIdentity(HOSTILE, HOSTILE, (1, 1, 1), 4, 3, {HOSTILE: HOSTILE})
    case = replace(case, identity=Identity((HOSTILE,), (launch,), HOSTILE, (HOSTILE,), loud))
    base = replace(
        BASE, name=HOSTILE, commit=HOSTILE, changed_rules=(HOSTILE,), python=HOSTILE, packages={"a": HOSTILE}
    )
    known = PlannedBase(changed=(HOSTILE,), performance=(HOSTILE,), apart=loud, failure=loud)
    planned = PlannedOp(HOSTILE, (), (HOSTILE,), base=known)
    plan = Plan((planned,), 1, 1.0, "cuda", base=base, duel=DuelWhat.ALL, duel_family=1, base_note=loud)
    op = StaticOp(
        HOSTILE,
        "sm_90",
        (
            StaticCase(HOSTILE, binaries=(KernelBinary(HOSTILE, HOSTILE, 32, mix={HOSTILE: 3}),)),
            StaticCase("n=1", Identity(unknown=loud)),
            StaticCase("n=2", failure=loud),
        ),
        unavailable=loud,
    )
    static = Static(("sm_90", HOSTILE), HOSTILE, (op, StaticOp(HOSTILE, HOSTILE, failure=loud)))
    return judged(run([OpRun(HOSTILE, performance=(case,))], plan=plan, static=static))


_STATIC_CASES = {
    "attention": ("batch=4,heads=32,sequence=4096,dtype=float16",),
    "broadcast": ("rows=1024,cols=4096,dtype=float16",),
    "matmul": tuple(f"m={n},n={n},k={n},dtype=float16" for n in (1024, 4096)),
    "softmax": tuple(f"rows=4096,cols={n},dtype=float16" for n in (512, 1024, 4096, 32768)),
}


def _static_op(op: str, target: str, *, base: bool = False) -> StaticOp:
    if op == "broadcast" and target == "gfx942":
        broken = reason(
            "import_failed", suite="performance", error="RuntimeError", message="no AMD launch limits are known",
            file="kernels/_launch.py", line=31,
        )  # fmt: skip
        return StaticOp(op, target, failure=broken)
    lacking = reason("static_tool_missing", tools="llvm-objdump", figures="the instructions")
    missing = lacking if target == "gfx942" else None
    cases = tuple(_static_case(op, case, target, base=base) for case in _STATIC_CASES[op])
    return StaticOp(op, target, cases, unavailable=missing)


def _static_case(op: str, case: str, target: str, *, base: bool) -> StaticCase:
    if op == "attention":
        why = reason("captured_opaque", what="torch.compile", file="attention_triton.py", line=77)
        return StaticCase(case, Identity(unknown=why))
    if op == "broadcast" and not base:
        boom = reason(
            "compile_failed", kernel="_broadcast_kernel", target=target, file="broadcast_triton.py", line=19,
            message="out of resource: shared memory, 294912 of 232448 bytes",
        )  # fmt: skip
        return StaticCase(case, Identity(unknown=boom), failure=boom)
    long = op == "softmax" and case.rpartition("cols=")[2].startswith("32768")
    grew = op == "softmax" and not base
    digest = f"{random.Random(f'{op} {target} {long} {grew}').getrandbits(64):016x}"
    seen = target == "sm_90"
    binary = KernelBinary(
        f"_{op}_kernel",
        digest,
        registers=(96 if grew else 64) if long else (34 if grew else 32),
        spill_bytes=(24 if grew else 0) if long else 0,
        local_bytes=(32 if grew else 0) if long else 0,
        shared_bytes=65536 if op == "matmul" else 16,
        instructions=(412 if grew else 388) if seen else None,
        mix={"memory": 30, "float": 160 + 24 * grew, "integer": 120, "control": 22, "other": 56} if seen else {},
        warps=8 if grew else 4,
        occupancy=(0.625 if grew else 0.9375) if long else 1.0,
    )
    launch = LaunchIdentity(f"_{op}_kernel", digest, (4096, 1, 1), binary.warps, 3, {"cols": case[-20:]})
    return StaticCase(case, Identity(("aten.empty_like.default(#0)",), (launch,), "c0ffee"), (binary,))


@functools.cache
def first_run() -> tuple[Run, Judgements]:
    """A machine with no accelerator: accuracy in the interpreter, and the compiled kernels."""
    record, _ = on_cpu()
    cases = tuple(f"rows=4096,cols={n},dtype=float16" for n in (512, 32768))
    static = Static(("sm_90",), "triton 3.7.1, torch 2.13.0", (_static_op("softmax", "sm_90"),))
    planned = replace(record.plan.ops[0], performance=cases)
    op = replace(record.ops[0], accuracy=tuple(replace(c, fresh=True) for c in record.ops[0].accuracy))
    plan = replace(record.plan, ops=(planned,))
    return judged(replace(record, ops=(op,), plan=plan, static=static))
