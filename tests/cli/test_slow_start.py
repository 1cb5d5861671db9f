"""Where workers cannot be forked, a check says once why each takes seconds to start, and goes on."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from perfci.cli.demo import write_project


@pytest.mark.nightly
def test_a_folder_on_the_path_that_hides_an_installed_package_is_named_once(tmp_path):
    write_project(tmp_path / "project")
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "msgspec").symlink_to(Path(msgspec.__file__).parent)
    path = os.pathsep.join([str(Path(__file__).parents[2]), str(hiding)])
    command = [sys.executable, "-P", "-m", "perfci", "check", "--device", "fake", "--project", tmp_path / "project"]

    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Each worker imports its packages anew") == 1
    assert f"since {hiding / 'msgspec' / '__init__.py'} is on PYTHONPATH" in done.stderr
