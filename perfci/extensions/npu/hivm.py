"""Kernels lowered for Ascend chips by their own compiler, without CANN and without a chip.

triton-ascend lowers TTIR to linalg, and bishengir of the package ascendnpu-ir that to HIVM, with every buffer placed in
on-chip memory and every barrier set. hivmc, which makes the chip's code of it, is only in CANN and is not asked.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import tempfile
from collections.abc import Mapping, MutableMapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from perfci.core.environment import installed_versions
from perfci.core.errors import DeviceError, PerfciError

PACKAGE = "ascendnpu-ir"
STAGE = "hivm"  # of triton-ascend's compiler, which is ours
PLAN = "module.hivm.opt.mlir"  # file of HIVM that hivmc would get
LIMIT_S = 100  # of one program. The longest kernel of this repository takes 3 s on an idle machine
LAST = ("hivmc", "hivmc-a5")
"""Programs of the stage that is left out. Where they fail, bishengir plans anew with other options, up to five times"""

FLAGS = {  # triton-ascend's option of a kernel -> bishengir's
    "multibuffer": "enable-auto-multi-buffer",
    "enable_auto_bind_sub_block": "enable-auto-bind-sub-block",
    "enable_hivm_auto_cv_balance": "enable-hivm-auto-cv-balance",
    "sync_solver": "enable-hivm-graph-sync-solver",
    "unit_flag": "enable-hivm-unit-flag-sync",
    "inject_barrier_all": "enable-hivm-inject-barrier-all-sync",
    "inject_block_all": "enable-hivm-inject-block-all-sync",
    "limit_auto_multi_buffer_only_for_local_buffer": "limit-auto-multi-buffer-only-for-local-buffer",
    "set_workspace_multibuffer": "set-workspace-multibuffer",
    "tile_mix_vector_loop": "tile-mix-vector-loop",
    "tile_mix_cube_loop": "tile-mix-cube-loop",
    "limit_auto_multi_buffer_of_local_buffer": "limit-auto-multi-buffer-of-local-buffer",
    "disable_auto_inject_block_sync": "disable-auto-inject-block-sync",
}
A5_LACKS = frozenset({"sync_solver", "inject_block_all", "disable_auto_inject_block_sync"})  # as triton-ascend has it

MEMORIES = {"ub": "UB", "cbuf": "L1", "cc": "L0C", "ca": "L0A", "cb": "L0B"}  # HIVM's address spaces

TOO_LARGE = "npu_overflows"  # kind of the reason why a kernel does not fit
UNBUFFERED = "// double buffering was given up\n"  # a line of ours at the end of a kernel's HIVM
GIVEN_UP = re.compile(r"set enable-auto-multi-buffer to false[^\n]*; compilation then succeeded")
"""What bishengir writes in passing where a kernel fits only without double buffering"""

_BITS = {"i1": 8, "i8": 8, "i16": 16, "i32": 32, "i64": 64, "f16": 16, "bf16": 16, "f32": 32, "f64": 64,
         "f8E4M3FN": 8, "f8E5M2": 8}  # fmt: skip
_STEP = re.compile(  # a function begins, a number, a buffer with its places
    r"^\s*(?P<begins>func\.func) |^\s*(?P<name>%\S+) = (?:arith|llvm\.mlir)\.constant\(?\s*(?P<value>\d+) : i64|"
    r"hivm\.hir\.pointer_cast\((?P<places>[^)]*)\)[^:\n]*: memref<(?P<shape>[^,>]+)"
    r"[^\n]*?#hivm\.address_space<(?P<space>\w+)>",
    re.MULTILINE,
)
_DOUBLED = re.compile(
    r"arith\.select [^:\n]*: memref<[^\n]*#hivm\.address_space<(?:ub|cbuf|cc)>"  # A2, A3
    r"|llvm\.select [^:\n]*: i1, !llvm\.struct<\(ptr<"  # 950
)
_OVERFLOW = re.compile(r"(\w+) overflow, requires (\d+) bits while (\d+)")
_LINE = re.compile(r'loc\("[^"]*?([^"/]+\.py)":(\d+):\d+\)|[^"\s]*?([^"/\s]+\.py):(\d+):\d+: error')
_ERROR = re.compile(r"error: (.+)")
_PASS = re.compile(r"IR Dump Before \w+ \(([\w-]+)\)")
_ASSERTED = re.compile(r"Assertion `(.+?)' failed")
_BITCODE = re.compile(r'"[^"]*/([^"/]+\.bc)"')  # names the environment's folder


class LoweringError(PerfciError):
    """The compiler refuses a kernel, with a reason. One that is too large has the bytes that it requires."""


@cache
def find_folder() -> Path | None:
    """Returns the folder of ascendnpu-ir's programs. None if it is not installed."""
    spec = importlib.util.find_spec("ascendnpuir")
    places = list(spec.submodule_search_locations or []) if spec else []
    return next((Path(place, "bin") for place in places if Path(place, "bin").is_dir()), None)


def describe() -> str:
    """The compiler's name and version."""
    return f"{PACKAGE} {installed_versions([PACKAGE]).get(PACKAGE, '?')}"


def lower(linalg: str, metadata: Mapping[str, Any], board: str) -> str:
    """Returns the HIVM of a kernel without paths of this machine. linalg: what triton-ascend made of its TTIR.

    Raises LoweringError for a kernel that bishengir does not lower, and DeviceError if it is ended from outside.
    """
    folder, is_a5 = find_folder(), board.startswith("Ascend950")
    assert folder is not None
    with tempfile.TemporaryDirectory(prefix="perfci-hivm-") as place:
        source = Path(place, "kernel.mlir")
        source.write_text(linalg)
        options = [
            f"--{flag}={metadata[name]}"
            for name, flag in FLAGS.items()
            if metadata.get(name) is not None and not (is_a5 and name in A5_LACKS)
        ]
        options += ["--enable-hfusion-compile=true", "--enable-triton-kernel-compile=true"]
        options += [] if is_a5 else ["--enable-hivm-compile=true"]
        program = folder / ("bishengir-compile-a5" if is_a5 else "bishengir-compile")
        command = [str(program), str(source), f"--target={board}", *options, f"--save-temps={place}"]
        command += ["-o", str(Path(place, "kernel"))]
        variables = _leave_out_last(place)
        done = _run(command, variables)
        plan = Path(place, PLAN)
        if not plan.is_file():
            refused = explain(done.stdout + done.stderr, done.returncode, program.name)
            if refused.reason.kind != TOO_LARGE and (failing := find_pass(command, variables)):
                refused = LoweringError(
                    refused.reason.kind, **{**refused.reason.facts, "stage": f"{failing} ({program.name})"}
                )
            raise refused
        given_up = UNBUFFERED if GIVEN_UP.search(done.stdout + done.stderr) else ""
        return _BITCODE.sub(r'"\1"', plan.read_text()) + given_up


def _leave_out_last(place: str) -> dict[str, str]:
    """Variables with an end in hivmc's place that does nothing: what hivmc would get is all that is wanted."""
    for name in LAST:
        Path(place, name).symlink_to("/bin/true")
    return os.environ | {"PATH": f"{place}{os.pathsep}{os.environ.get('PATH', '')}"}


def _run(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=LIMIT_S, env=variables
        )
    except subprocess.TimeoutExpired as error:
        raise DeviceError("npu_compiler_stopped", stage=Path(command[0]).name, why=f"after {LIMIT_S} s") from error


def explain(output: str, code: int, program: str) -> LoweringError:
    """Why a program of the compiler failed, by what it wrote. A negative code is the signal that ended it."""
    facts: dict[str, Any] = {"compiler": describe(), "stage": program, **_find_line(output)}
    if overflow := _OVERFLOW.search(output):
        memory, required, available = overflow.groups()
        sizes = {"required": int(required) // 8, "available": int(available) // 8}
        more = sizes["required"] - sizes["available"]
        return LoweringError(TOO_LARGE, memory=memory.upper(), more=more, **sizes, **facts)
    asserted = _ASSERTED.search(output)
    message = next((text for text in _ERROR.findall(output) if "hivmc" not in text), None)
    if message is None and asserted:
        message = f"Assertion `{asserted[1]}' failed"
    if message is None and code in {-9, -15}:  # ended from outside: too little memory
        raise DeviceError("npu_compiler_stopped", stage=program, why=f"by signal {-code}")
    lines = [line for line in output.splitlines() if line.strip()]
    message = message or (f"ended by signal {-code}" if code < 0 else lines[-1] if lines else f"exit code {code}")
    return LoweringError("npu_not_lowered", message=message[:300], **facts)


def _find_line(output: str) -> dict[str, Any]:
    """Where in the kernel's source the first error is, if the compiler was given lines."""
    place = _LINE.search(output)
    file, line = ((place[1] or place[3]), int(place[2] or place[4])) if place else (None, None)
    return {"file": file, "line": line}


def find_pass(command: Sequence[str], variables: Mapping[str, str] | None = None) -> str | None:
    """Returns the pass in which a program of MLIR fails: the last one that it reports as begun, or None.

    Passes that a pass runs for itself do not count if the command names the others.
    """
    more = ["--mlir-print-ir-before-all", "--mlir-disable-threading", "--mlir-elide-elementsattrs-if-larger=1"]
    done = subprocess.run(
        [*command, *more], capture_output=True, text=True, errors="replace", check=False, timeout=LIMIT_S, env=variables
    )
    begun = _PASS.findall(done.stderr)
    named = [name for name in begun if any(word.startswith(f"--{name}") for word in command)]
    return next(reversed(named or begun), None)


def read_plan(text: str) -> dict[str, int]:
    """What HIVM shows of a kernel: bytes of each on-chip memory, barriers, and buffers that are there twice or more.

    Of a buffer that is there twice each pass of a loop selects the one that the last pass has not used.

    >>> read_plan('''
    ... %c0_i64 = arith.constant 0 : i64
    ... %c512_i64 = arith.constant 512 : i64
    ... %0 = hivm.hir.pointer_cast(%c0_i64) : memref<1x128xf32, #hivm.address_space<ub>>
    ... %1 = hivm.hir.pointer_cast(%c512_i64) : memref<1x128xf32, #hivm.address_space<ub>>
    ... %9 = arith.select %8, %1, %0 : memref<1x128xf32, #hivm.address_space<ub>>
    ... hivm.hir.pipe_barrier[<PIPE_V>]
    ... ''')
    {'ub_bytes': 1024, 'barriers': 1, 'double_buffers': 1, 'unbuffered': 0}
    """
    constants: dict[str, int] = {}
    ends: dict[str, int] = {}
    for step in _STEP.finditer(text):
        if step["begins"]:
            constants = {}
        elif step["name"]:
            constants[step["name"]] = int(step["value"])
        elif step["space"] in MEMORIES:
            starts = [constants.get(place.strip(), 0) for place in step["places"].split(",")]
            name = f"{MEMORIES[step['space']].lower()}_bytes"
            ends[name] = max(ends.get(name, 0), max(starts) + _count_bytes(step["shape"]))
    barriers, given_up = text.count("hivm.hir.pipe_barrier["), text.count(UNBUFFERED)
    return {**ends, "barriers": barriers, "double_buffers": len(_DOUBLED.findall(text)), "unbuffered": given_up}


def _count_bytes(shape: str) -> int:
    """Bytes of a buffer such as 1x4096xbf16. 0 if its size is not fixed."""
    *sides, kind = shape.split("x")
    return math.prod(map(int, sides)) * _BITS.get(kind, 0) // 8 if all(side.isdigit() for side in sides) else 0


def install_stages(compiler: Any, board: str, binary: str) -> None:
    """Have triton-ascend's compiler go on to HIVM and no further, for the rest of the process's life.

    In the binary's place is what bishengir was given: it lays out the memory that cube and vector cores share in
    another order from one call to the next, so that HIVM would be another one of the same kernel.
    compiler: its class. board: as bishengir names it.
    """
    whole = compiler.add_stages
    parse = whole.__globals__["_parse_linalg_metadata"]  # Triton loads its module without a place in sys.modules

    def add_stages(self: Any, stages: MutableMapping[str, Any], options: Any, *more: Any) -> None:
        whole(self, stages, options, *more)
        linalg = stages["ttadapter"]

        def adapt(source: Any, metadata: MutableMapping[str, Any]) -> Any:
            try:
                return linalg(source, metadata)
            except subprocess.CalledProcessError as error:
                raise _explain_adapter(str(source), error) from error

        given = {}

        def plan(source: str, metadata: MutableMapping[str, Any]) -> str:
            given["linalg"], _ = parse(source, metadata)
            return lower(given["linalg"], metadata, board)

        def finish(_: str, metadata: MutableMapping[str, Any]) -> bytes:
            flags = {name: metadata.get(name) for name in FLAGS}
            return f"{given['linalg']}\n// {board} {describe()} {flags}\n".encode()

        del stages[binary]
        stages["ttadapter"], stages[STAGE], stages[binary] = adapt, plan, finish

    compiler.add_stages = add_stages


def _explain_adapter(source: str, error: subprocess.CalledProcessError) -> LoweringError:
    """Why triton-ascend's program does not lower TTIR, with the pass that does not."""
    output = (error.stderr or b"").decode(errors="replace")
    with tempfile.NamedTemporaryFile("w", suffix=".mlir") as file:
        file.write(source)
        file.flush()
        command = [str(file.name) if str(part).endswith(".ttir.mlir") else str(part) for part in error.cmd]
        command[command.index("-o") + 1] = os.devnull
        name = find_pass(command)
    raised = explain(output, error.returncode, "triton-adapter-opt")
    version = installed_versions(["triton-ascend"]).get("triton-ascend", "?")
    facts = {**raised.reason.facts, "stage": name or "triton-adapter-opt", "compiler": f"triton-ascend {version}"}
    return LoweringError(raised.reason.kind, **facts)
