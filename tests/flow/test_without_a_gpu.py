"""Every command of docs/without-a-gpu.md, unchanged, in a clone of this repository."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from perfci.cli.main import run

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "without-a-gpu.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    folder = tmp_path_factory.mktemp("without-a-gpu") / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(folder)], check=True)
    return folder


@pytest.mark.nightly  # test_docs.py has every command's options
@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_works_as_it_stands(command, clone, monkeypatch, capsys):
    monkeypatch.chdir(clone)
    program, *words = shlex.split(command)
    device = ["--device", "cpu"] if words[0] == "check" else []  # as on a machine without a GPU

    assert program == "perfci"
    assert run([*words, *device]) == 0, capsys.readouterr().err


@pytest.mark.nightly  # tests/extensions/static has what changed
def test_the_hook_compiles_only_what_changed_and_lets_no_broken_kernel_into_a_commit(clone, monkeypatch, capsys):
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    program, *words = shlex.split(hook["entry"])
    monkeypatch.chdir(clone)
    kernel = clone / "kernels" / "vector_add" / "vector_add_triton.py"
    sound = kernel.read_text(encoding="utf-8")

    def check(text):
        kernel.write_text(text, encoding="utf-8")
        code = run([*words, "--format", "json"])
        return code, {row["op"] for row in json.loads(capsys.readouterr().out)["verdicts"]}

    assert program == "perfci"
    assert check(sound) == (0, set())
    assert check(sound + "\nADDED = 1\n") == (0, {"vector_add"})
    code, ops = check(sound.replace("num_warps=", "num_warps=oops or "))
    assert (code != 0, ops) == (True, {"vector_add"})
    kernel.write_text(sound, encoding="utf-8")


def test_the_page_has_its_commands():
    names = {shlex.split(command)[1] for command in COMMANDS}

    assert names == {"check", "static", "show", "compare", "report"}
