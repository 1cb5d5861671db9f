"""What models call of a project's ops, and what a change of an op costs a model. See docs/workloads.md.

records                           a workload as it is stored
recording fits attribution        `perfci.record`: calls with their cases, activity records, and which belongs to which
traces                            other forms: traces of torch.profiler, flashinfer-trace
cases                             `perfci.workload`: cases that stand for all calls
costs                             verdicts in terms of models
end_to_end                        a script of the project's as a case
page                              `perfci brief --model`
"""

from perfci.core.extensions import CommandLine, Extension

HERE = "perfci.extensions.workloads"

EXTENSION = Extension(
    commands={
        "record": CommandLine(
            f"{HERE}.commands.record", "Optimise", "Record what a model calls of the ops, and for how long.", "project"
        )
    },
    provides={
        "record": (f"{HERE}.recording:Recorder",),
        "workload": (f"{HERE}.cases:list_cases",),
        "calls": (f"{HERE}.cases:write_calls",),
        "weigh": (f"{HERE}.costs:weigh_verdicts",),
        "end_to_end": (f"{HERE}.end_to_end:duel_scripts",),
        "model_brief": (f"{HERE}.page:brief_model",),
    },
)
