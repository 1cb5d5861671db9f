"""A red gate in ten seconds: a project on the fake device, and a change that makes one kernel slower and one wrong."""

import contextlib
import io
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Annotated

from perfci.cli.accept import accept
from perfci.cli.check import check
from perfci.cli.exits import Exit
from perfci.cli.output import print_parts
from perfci.cli.parsing import option
from perfci.core import commands
from perfci.core.errors import UsageError
from perfci.core.wording import say
from perfci.scaffold import new

_OPS = {
    "relu": {
        "takes": "x", "inputs": "", "meaning": "negative numbers become zero", "us": "320.0", "limits": "",
        "result": "np.maximum(x, 0)  # a NaN stays one", "shape": "x.shape", "compute": "np.maximum(x, 0, out=out)",
    },
    "row_sum": {
        "takes": "x", "inputs": "", "meaning": "the sum of every row", "us": "200.0",
        "limits": "    reduces=lambda rows, cols, dtype: cols,\n"
        '    values=("normal", "zeros", "ones", "tiny", "nan", "cancellation"),\n',
        "result": "x.sum(axis=1)", "shape": "x.shape[0]", "compute": "out[:] = x.sum(axis=1)",
    },
    "scale": {
        "takes": "x, factor", "inputs": ', "factor": 0.5', "meaning": "x times a factor", "us": "320.0", "limits": "",
        "result": "x * x.dtype.type(factor)", "shape": "x.shape",
        "compute": "np.multiply(x, x.dtype.type(factor), out=out)",
    },
}  # fmt: skip
"""What tells the ops apart: facts of the templates of their files."""

_SETTINGS = "[tool.perfci.fake]\nlaunch_noise = 0.004\nblock_noise = 0.001\n"

_PLANTED = {"scale": ("MEGABYTE = 320.0", "MEGABYTE = 333.6"), "row_sum": ("x.sum(axis=1)", "x[:, :-1].sum(axis=1)")}
"""op, and the edit of its `_triton` file that plants a mistake"""


def demo(
    keep: Annotated[Path | None, option("--keep", "Where to build the project.", "a temporary folder", "DIR")] = None,
) -> int:
    """See a red gate in ten seconds: a fake device, one kernel made slower and one wrong. No torch needed."""
    if keep and keep.exists() and not (keep.is_dir() and not any(keep.iterdir())):
        raise UsageError("demo_folder_taken", folder=str(keep))
    folder = Path(keep or tempfile.mkdtemp(prefix="perfci-demo-"))
    write_project(folder)
    _print(say("A project on a fake device: {folder}", folder=str(folder)))
    commands.read_by(replace(commands.get_reader(), project=str(folder), device="fake"))
    _print("", f"$ {commands.write('check', '--no-judge')} && {commands.write('accept', '--dirty')}")
    with _silence():
        check(no_judge=True, device="fake", project=folder)
        accept(dirty=True, project=folder)
    for op, (before, after) in _PLANTED.items():
        path = folder / "kernels" / op / f"{op}_triton.py"
        path.write_text(path.read_text(encoding="utf-8").replace(before, after), encoding="utf-8", newline="\n")
    slow, wrong = _PLANTED
    _print(say("planted in {op}: 4 % slower", op=slow), say("planted in {op}: the last column left out", op=wrong))
    # A fixed seed: of the wrong checks the same one is the worst in every demo.
    _print("", f"$ {commands.write('check', '--seed', '7')}")
    status = check(device="fake", seed=7, project=folder)
    if status == Exit.GATE_FAILED:
        explanation = say(
            "perfci ends with exit code 2 here: the gate failed, as it would on a merge request. {slow} was found "
            "slower than its baseline allows, and measured again in two fresh processes before perfci said so. {wrong} "
            "gives wrong answers, so its speed was not even looked at. Exit 0 would be ok, 3 only warnings, 1 that "
            "perfci itself failed.",
            slow=slow, wrong=wrong,
        )  # fmt: skip
        print_parts(["", explanation])
    return status


COMMANDS = {"demo": demo}


def write_project(folder: Path) -> None:
    """Write the demo's project, which has no mistake yet."""
    kernels, templates = folder / "kernels", resources.files("perfci.scaffold").joinpath("templates", "demo")
    for op, facts in _OPS.items():
        new.write(new.OpPlace(op, kernels / op, kernels), new.fill_templates(op, templates, **facts), {})
    (folder / "pyproject.toml").write_text(_SETTINGS, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def _silence() -> Iterator[None]:
    nowhere = io.StringIO()
    with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
        yield


def _print(*lines: str) -> None:
    for line in lines:
        print(line, flush=True)
