"""A machine with neither torch nor Triton: a real interpreter that has everything else."""

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

LEFT_OUT = ("torch", "triton", "functorch", "nvidia", "__editable__")


@pytest.fixture(scope="module")
def python(tmp_path_factory):
    """An interpreter with this one's packages, but for torch and Triton."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False)
    [place] = folder.glob("lib/python3*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.startswith(LEFT_OUT) and path.suffix != ".pth":
            (place / path.name).symlink_to(path)
    (place / "perfci.pth").write_text(str(Path(__file__).parents[2]))
    return folder / "bin" / "python"


@pytest.mark.skipif(sys.platform == "win32", reason="symlinks need a right there")
def test_the_doctor_names_one_remedy_and_says_that_nothing_can_run(python, tmp_path):
    (tmp_path / "kernels").mkdir()
    made = [python, "-P", "-m", "perfci", "new", "scale", "--fake", "--project", tmp_path]
    subprocess.run(made, check=True, capture_output=True)

    done = subprocess.run(
        [python, "-P", "-m", "perfci", "doctor", "--project", tmp_path], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1, done.stdout + done.stderr
    problems = [line for line in done.stdout.splitlines() if line.startswith("problem")]
    assert len(problems) == 1 and "Neither torch nor Triton is installed" in problems[0]
    assert done.stdout.count("pip install") == 1
