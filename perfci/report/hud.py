"""A run in the layout of PyTorch's HUD: a row of its table `oss_ci_benchmark_v3` for each case and metric, as JSON."""

import math
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime

from perfci.core import codec
from perfci.core.model import Judgements, PerformanceCase, Run, Suite
from perfci.store.past.lines import KERNEL, REFERENCE, SPEEDUP, list_first_look


def to_hud(runs: Iterable[tuple[Run, Judgements | None]], environ: Mapping[str, str]) -> bytes:
    """Returns a line for each row. environ: of a CI job, which names repository, pipeline and job."""

    def find(*names: str) -> str:
        return next((environ[name] for name in names if environ.get(name)), "")

    def find_number(*names: str) -> int:
        return int(text) if (text := find(*names)).isdecimal() else 0

    lines = []
    for run, judgements in runs:
        where, device = run.environment, run.environment.device
        about = {
            "timestamp": int(datetime.fromisoformat(run.created).timestamp()), "schema_version": "v3", "name": "perfci",
            "repo": find("GITHUB_REPOSITORY", "CI_PROJECT_PATH"), "head_branch": where.branch or "",
            "head_sha": where.commit or "", "workflow_id": find_number("GITHUB_RUN_ID", "CI_PIPELINE_ID"),
            "run_attempt": find_number("GITHUB_RUN_ATTEMPT"), "job_id": find_number("CI_JOB_ID"),
            "runners": [{
                "name": where.host, "type": device.key, "gpu_info": device.name, "gpu_count": 1,
                "avail_gpu_mem_in_gb": (device.memory_bytes or 0) >> 30,
                "extra_info": {"board": device.uuid or "", "driver": device.driver or ""},
            }],
            "dependencies": {name: {"version": version} for name, version in where.packages.items()},
        }  # fmt: skip
        timed = (row for row in judgements.rows if row.suite is Suite.PERFORMANCE) if judgements else ()
        verdicts = {(row.op, row.case): str(row.verdict) for row in timed}
        for op, case in ((each.op, case) for each in run.ops for case in each.performance):
            info = {"run": run.id, "cache": case.cache, "timer": where.timer or ""}
            about["benchmark"] = {"name": "perfci", "mode": "inference", "dtype": case.dtype or "", "extra_info": info}
            if verdict := verdicts.get((op, case.case)):
                info["verdict"] = verdict
            about["model"] = {"name": f"{op}[{case.case}]", "type": "kernel", "backend": "triton", "origins": [op]}
            for name, values in _list_metrics(case):
                lines.append(codec.encode({**about, "metric": {"name": name, "benchmark_values": values}}))
    return b"".join(line + b"\n" for line in lines)


def _list_metrics(case: PerformanceCase) -> Iterator[tuple[str, list[float]]]:
    """Metrics that the case has, with their values of each block of the first look."""
    blocks = list_first_look(case)
    if blocks:
        yield "kernel_us", [block.arms[KERNEL].time.median_us for block in blocks]
        yield "reference_us", [block.arms[REFERENCE].time.median_us for block in blocks]
        yield "speedup", [math.exp(-block.shifts[SPEEDUP]) for block in blocks if SPEEDUP in block.shifts]
    for name in ("compile_s", "peak_bytes"):
        if (value := getattr(case, name)) is not None:
            yield name, [value]
