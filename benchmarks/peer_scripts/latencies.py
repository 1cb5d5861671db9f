"""Times an op in the WAYS of four tools, each with its settings. JSON question on standard input, answer on output.

do_bench       `triton.testing.do_bench`: the median of 100 ms of launches
nvbench        NVIDIA's package cuda-bench: cold launches until the entropy of their times is steady
tritonbench    its operators' latency by default: do_bench, without outliers by quartiles; answers compared once a case
kernelbench    its `eval`: answers to five inputs a case compared, then the mean of 100 launches by events

do_bench and nvbench run as installed, the others as their documentation and settings describe them. Nothing of perfci
is imported. The question names `ways`, the `op`, `folders` that each hold kernels/, and `cases`: arguments of
make_inputs. One way is timed in this process, from the shell to the answer. With `turns`, every way is timed so many
times for each folder, always in a new process, forked after torch is imported; and one process launches all folders'
kernels in turns, in random order, and names the board.
"""

import importlib.util
import json
import os
import random
import statistics
import sys
import tempfile
import traceback
from pathlib import Path

import torch
import triton
import triton.testing

L2_BYTES = 256 * 2**20
"""What a flush writes: more than any L2."""
INPUTS, WARM_UPS, LAUNCHES = 5, 3, 100
"""KernelBench's of a case"""
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
"""KernelBench's, absolute and relative"""


def main() -> None:
    question = json.load(sys.stdin)
    answered = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a tool prints, in C++ too, is none of the answer
    kernels = [Path(folder) / "kernels" for folder in question["folders"]]
    ops = [load(folder, question["op"], str(number)) for number, folder in enumerate(kernels)]
    ways = {name: WAYS[name] for name in question["ways"]}
    cases = [{**case, "dtype": getattr(torch, case["dtype"])} for case in question["cases"]]
    if question["turns"]:
        answer = {"alternated": forked(by_turns, ops, cases)}
        for name, way in ways.items():
            answer[name] = [[forked(way, op, cases) for op in ops] for _ in range(question["turns"])]
    else:
        (way,) = ways.values()
        answer = way(ops[0], cases)
    with answered:
        json.dump(answer, answered)


def load(kernels, op, name):
    """The op's kernel, reference and make_inputs. name: apart from other folders'."""
    sys.path[:0] = [str(kernels), str(kernels / op)]
    modules = []
    for part in ("triton", "baseline"):
        spec = importlib.util.spec_from_file_location(f"{op}_{part}_{name}", kernels / op / f"{op}_{part}.py")
        modules.append(importlib.util.module_from_spec(spec))
        spec.loader.exec_module(modules[-1])
    return getattr(modules[0], op), getattr(modules[1], op), modules[1].make_inputs


def forked(way, *about):
    """The way's answer from a separate process, or {"failed": why}."""
    with tempfile.TemporaryFile() as out:
        child = os.fork()
        if not child:
            try:
                answer = way(*about)
            except BaseException as error:
                traceback.print_exc()
                answer = {"failed": f"{type(error).__name__}: {error}"}
            out.write(json.dumps(answer).encode())
            out.flush()
            sys.stderr.flush()
            os._exit(0)
        status = os.waitpid(child, 0)[1]
        out.seek(0)
        return json.loads(out.read() or json.dumps({"failed": f"status {status}"}))


def calls(op, case, seed=0):
    """The kernel and the reference on the same inputs, as functions without arguments."""
    kernel, reference, make_inputs = op
    inputs = make_inputs(**case, device="cuda", seed=seed)
    return lambda: kernel(**inputs), lambda: reference(**inputs)


def by_do_bench(op, cases):
    rows = []
    for case in cases:
        times = [1000 * triton.testing.do_bench(call, return_mode="median") for call in calls(op, case)]
        rows.append({"us": times, "inputs": 0})
    return rows


# --- tritonbench ------------------------------------------------------------------------------------------------------


def by_tritonbench(op, cases):
    rows = []
    for case in cases:
        kernel, reference = calls(op, case)
        torch.testing.assert_close(kernel(), reference())
        times = [triton.testing.do_bench(call, warmup=25, rep=100, return_mode="all") for call in (kernel, reference)]
        rows.append({"us": [1000 * statistics.median_low(without_outliers(many)) for many in times], "inputs": 1})
    return rows


def without_outliers(times):
    """Those within one and a half times the quartiles' distance of the quartiles."""
    if len(times) < 4:
        return times
    first, _, third = statistics.quantiles(times, n=4)
    reach = 1.5 * (third - first)
    return [time for time in times if first - reach <= time <= third + reach]


# --- KernelBench ------------------------------------------------------------------------------------------------------


def by_kernelbench(op, cases):
    rows = []
    for case in cases:
        tolerance = TOLERANCES[case["dtype"]]
        for seed in range(INPUTS):
            kernel, reference = calls(op, case, seed)
            assert torch.allclose(kernel(), reference(), atol=tolerance, rtol=tolerance)
        times = [by_events(call) for call in calls(op, case)]
        noise = [statistics.stdev(many) / statistics.mean(many) for many in times]
        rows.append({"us": [statistics.mean(many) for many in times], "inputs": INPUTS, "noise": noise})
    return rows


def by_events(call):
    """Microseconds of launches, each alone on the device behind a flush of L2; the first is left out."""
    for _ in range(WARM_UPS):
        call()
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    return [timed(call) for _ in range(1 + LAUNCHES)][1:]


def timed(call):
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    torch.empty(L2_BYTES // 8, dtype=torch.int64, device="cuda").fill_(42)
    begin.record()
    call()
    end.record()
    torch.cuda.synchronize()
    return 1000 * begin.elapsed_time(end)


# --- nvbench ----------------------------------------------------------------------------------------------------------


def by_nvbench(op, cases):
    import cuda.bench as nvbench

    def benchmark(state):
        arms = calls(op, cases[state.get_int64("Case")])
        call = arms[state.get_int64("Arm")]
        torch.cuda.synchronize()
        streams = {}

        def launch(launched):
            address = launched.get_stream().addressof()
            if address not in streams:
                streams[address] = torch.cuda.ExternalStream(address)
            with torch.cuda.stream(streams[address]):
                call()

        state.exec(launch, batched=False)

    made = nvbench.register(benchmark)
    made.add_int64_axis("Case", list(range(len(cases)))).add_int64_axis("Arm", [0, 1])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "nvbench.json"
        nvbench.run_all_benchmarks(
            ["latencies", "--devices", "0", "--stopping-criterion", "entropy", "--json", str(path)]
        )
        text = path.read_text(encoding="utf-8")
    rows = [{"us": [0.0, 0.0], "noise": [0.0, 0.0], "inputs": 0} for _ in cases]
    for state in json.loads(text)["benchmarks"][0]["states"]:
        if state["is_skipped"]:
            raise RuntimeError(f"{state['name']}: {state['skip_reason']}")
        place = {axis["name"]: int(axis["value"]) for axis in state["axis_values"]}
        values = {summary["tag"]: summary["data"][0]["value"] for summary in state["summaries"] if summary.get("data")}
        row = rows[place["Case"]]
        row["us"][place["Arm"]] = 1e6 * float(values["nv/cold/time/gpu/median"])
        row["noise"][place["Arm"]] = float(values["nv/cold/time/gpu/stdev/relative"])
    rows[0]["json"] = text
    return rows


# --- no tool ----------------------------------------------------------------------------------------------------------


def by_turns(ops, cases, rounds=1000):
    """Medians of the launches of every folder's kernel, with the first folder's first."""
    about = torch.cuda.get_device_properties(0)
    board = f"{about.name}, {about.uuid}, torch {torch.__version__}, Triton {triton.__version__}"
    rows = []
    for case in cases:
        kernels = [calls(op, case)[0] for op in ops]
        times = [[] for _ in kernels]
        order = list(range(len(kernels)))
        for _ in range(rounds):
            random.shuffle(order)
            for place in order:
                times[place].append(timed(kernels[place]))
        rows.append({"us": [statistics.median(many[WARM_UPS:]) for many in times]})
    return {"board": board, "rows": rows}


WAYS = {
    "do_bench": by_do_bench,
    "nvbench": by_nvbench,
    "tritonbench": by_tritonbench,
    "kernelbench": by_kernelbench,
}

if __name__ == "__main__":
    main()
