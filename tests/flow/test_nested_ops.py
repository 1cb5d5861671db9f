"""Ops in folders of folders, with modules that each level's ops share."""

import json
import shutil
import subprocess
import sys

import pytest


@pytest.fixture
def nested(project):
    """scale in kernels/attention/flash/, relu in kernels/norm/: each level has its `_speeds` and `_common`."""
    kernels = project.root / "kernels"
    for op, group in (("scale", "attention/flash"), ("relu", "norm")):
        (kernels / group).mkdir(parents=True)
        shutil.move(kernels / op, kernels / group / op)
    shutil.rmtree(kernels / "row_sum")
    (kernels / "_speeds.py").write_text("TOP = 320.0\n")
    (kernels / "attention" / "_common.py").write_text("FACTOR = 1.0\n")
    (kernels / "attention" / "flash" / "_speeds.py").write_text("TOP = 400.0\n")
    (kernels / "norm" / "_common.py").write_text("FACTOR = 2.0\n")
    for folder, op in ((kernels / "attention" / "flash" / "scale", "scale"), (kernels / "norm" / "relu", "relu")):
        path = folder / f"{op}_triton.py"
        text = path.read_text().replace("US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = _speeds.TOP * _common.FACTOR")
        path.write_text(text.replace("import numpy", "import _common\nimport _speeds\nimport numpy"))
        path = folder / f"{op}_performance.py"
        text = path.read_text().replace("rows=[256, 512]", "rows=[int(128 * _common.FACTOR), 512]")
        path.write_text(text.replace("import perfci", "import _common\nimport perfci"))
    return project


def medians(project, op):
    """Microseconds of the op's second case, with an input that has 0.26 MB."""
    case = next(one for one in project.run_record().ops if one.op == op).performance[1]
    return case.blocks[0].arms["kernel"].time.median_us


def test_each_op_imports_what_its_own_levels_share(nested):
    assert nested.check("--suite", "performance").code == 0

    # 2 us and so many a megabyte, of 0.26 MB: 400 of the nearest _speeds, 320 times 2 of norm's _common
    assert medians(nested, "scale") == pytest.approx(2 + 400 * 0.262, rel=0.02)
    assert medians(nested, "relu") == pytest.approx(2 + 640 * 0.262, rel=0.02)


def test_baselines_and_thresholds_lie_under_the_ops_name_alone(nested):
    nested.perfci("check", "--no-judge", "--device", "fake")
    assert nested.accept().code == 0
    (nested.root / "thresholds").mkdir()
    (nested.root / "thresholds" / "scale.yaml").write_text("speedup: 9\n")

    answer = nested.check("--suite", "performance")

    stored = {path.relative_to(nested.root).as_posix() for path in (nested.root / "baselines").rglob("*.json")}
    assert stored == {"baselines/fake-one/relu.json", "baselines/fake-one/scale.json"}
    assert (answer.verdicts("scale"), answer.verdicts("relu")) == ({"TOO_SLOW"}, {"PASS"})


@pytest.mark.parametrize("name", ["scale", "attention/flash/scale", "attention/flash", "attention/", "sc*"])
def test_an_op_is_named_by_its_name_its_folder_or_a_folder_above(nested, name):
    answer = nested.perfci("list", "--device", "fake", "--format", "json", name)

    assert [op["op"] for op in json.loads(answer.out)] == ["scale"]


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("place", [pytest.param(".", marks=pytest.mark.nightly), "kernels/attention/flash/scale"])
def test_a_nested_suite_runs_by_its_path_from_anywhere(nested, place):
    path = nested.root / "kernels" / "attention" / "flash" / "scale" / "scale_accuracy.py"

    command = [sys.executable, path, "--device", "fake"]
    done = subprocess.run(command, cwd=nested.root / place, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS" in done.stdout
    assert "relu" not in done.stdout
    assert "of allowed" not in done.stdout

    told = subprocess.run([*command, "--verbose"], cwd=nested.root / place, capture_output=True, text=True, check=False)

    heads, *rows = told.stdout.partition("scale: accuracy\n")[2].splitlines()
    assert {"max abs error", "max rel", "L2", "of allowed"} <= {*map(str.strip, heads.split("  "))}
    checked = {check.case for op in nested.run_record().ops for check in op.accuracy}
    assert {line.split()[0] for line in rows if "rows=" in line} == {case for case in checked if "rows=" in case}


def test_a_program_that_is_only_named_like_a_suite_keeps_its_path(nested):
    told = []
    for name in ("train.py", "train_accuracy.py"):
        path = nested.root / "tools" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("import sys\nimport perfci\nprint(sys.path)\n")
        told.append(subprocess.run([sys.executable, path], capture_output=True, text=True, check=True).stdout)

    assert told[0] == told[1]


def test_what_a_group_shares_is_a_part_of_its_ops_files(nested):
    from perfci.ops.fingerprint.tree import Tree

    files = {op: Tree(nested.root, nested.root / "kernels").fingerprint(op).files for op in ("scale", "relu")}

    assert {name for name in files["scale"] if "/_" in name} == {
        "kernels/attention/_common.py",
        "kernels/attention/flash/_speeds.py",
    }
    assert {name for name in files["relu"] if "/_" in name} == {"kernels/_speeds.py", "kernels/norm/_common.py"}


def test_two_ops_of_one_name_stop_the_check_with_both_folders(nested):
    kernels = nested.root / "kernels"
    shutil.copytree(kernels / "norm" / "relu", kernels / "attention" / "relu")

    answer = nested.perfci("check", "--device", "fake")

    assert answer.code == 1
    assert str(kernels / "norm" / "relu") in answer.err
    assert str(kernels / "attention" / "relu") in answer.err
    assert len(answer.err.strip().splitlines()) == 1
