"""Rehearsals of sketches and functions, and checks of ops, in forks of one process, which imports torch once."""

import atexit
import dataclasses
import functools
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from perfci.core import settings
from perfci.core.codec import decode
from perfci.extensions.adopt.files import find_files
from perfci.extensions.adopt.sketch import Sketch, SketchFiles

TEXTS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text("utf-8"))

HERE = Path(__file__).parent

VARIABLES = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}


def _run(program: str, *arguments: str, text: str = "") -> str:
    """What a program of this folder prints."""
    order = str(HERE / program), arguments, text, {**os.environ, **VARIABLES}, str(Path.cwd())
    server = _start()
    print(json.dumps(order), file=server.stdin, flush=True)
    status, output, errors = json.loads(server.stdout.readline())
    assert status == 0, errors
    return output


@functools.cache
def _start() -> subprocess.Popen[str]:
    command, both = [sys.executable, "-W", "ignore", str(HERE / "forking.py")], subprocess.PIPE
    server = subprocess.Popen(
        command, stdin=both, stdout=both, text=True, env={**os.environ, **VARIABLES, "PYTHONPATH": ""}
    )
    atexit.register(server.communicate)
    return server


def rehearse(wanted: Mapping[str, tuple[str, SketchFiles]], hopeless: Collection[str] = ()) -> dict[str, Sketch | str]:
    """name -> the findings, or the sentence with the reason for none. hopeless: names with little time for a search."""
    asked = {name: (op, dataclasses.asdict(files), name in hopeless) for name, (op, files) in wanted.items()}
    answers = json.loads(_run("rehearsed.py", text=json.dumps(asked)))
    return {
        name: answer.get("reason") or decode(json.dumps(answer["sketch"]).encode(), Sketch)
        for name, answer in answers.items()
    }


class Rehearsals(dict[str, Any]):
    """As `rehearse` of all names, but of those alone that a test asks for, once each."""

    def __init__(self, wanted: Mapping[str, tuple[str, SketchFiles]], hopeless: Collection[str] = ()) -> None:
        super().__init__()
        self._wanted, self._hopeless = wanted, hopeless

    def __missing__(self, name: str) -> Any:
        self |= rehearse({name: self._wanted[name]}, self._hopeless)
        return self[name]


def unpack(kind: str, folder: Path) -> Path:
    """A folder with the files of others.yaml of this kind."""
    folder.mkdir(parents=True)
    for name, text in yaml.safe_load((HERE / "others.yaml").read_text("utf-8"))[kind].items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def of_file(path: Path) -> SketchFiles:
    """A kernel's file with what lies beside it: baseline and tests."""
    return find_files(str(path), None, settings.load(HERE.parents[2]))


def interpreted(root: Path, pattern: str, *ops: str) -> dict[str, tuple[int, list[str]]]:
    """How many checks each op had in Triton's interpreter, and which failed."""
    return json.loads(_run("interpreted.py", str(root / "kernels"), pattern, *ops).splitlines()[-1])


KERNEL = TEXTS["kernel"]
PARTS = {
    "triton": KERNEL,
    "baseline": "import torch\n\ndef op(x):\n    return x.clone()\n",
    **TEXTS["parts"],
}


def sketch(folder: Path, *edits: tuple[str, str, str], **parts: str) -> Path:
    """A small sketch, right in every way; parts replace whole files, edits (part, before, after) some text."""
    texts = {part: textwrap.dedent(text) for part, text in {**PARTS, **parts}.items()}
    for part, before, after in edits:
        assert before in texts[part]
        texts[part] = texts[part].replace(before, after)
    folder.mkdir(parents=True, exist_ok=True)
    for part, text in texts.items():
        (folder / f"op_v1_{part}.py").write_text(text, encoding="utf-8")
    return folder


def accuracy(call: str, imports: str = "") -> str:
    """An accuracy test with this body."""
    lines = f"import torch\nfrom op_v1_baseline import op as reference\nfrom op_v1_triton import op\n{imports}\n"
    return f"{lines}\ndef test_accuracy():\n{textwrap.indent(textwrap.dedent(call).strip(), '    ')}\n"


CUBES = {part: accuracy(text) if part.startswith("test_op") else text for part, text in TEXTS["cubes"].items()}
"""A wrapper that hides its kernel and demands an NPU; cubes, whose equal sides do not tell what belongs together."""

HARNESS = TEXTS["harness"]
"""Tests for a harness that is not installed and supplies the functions itself."""
