"""Ops that are written in several technologies: the op's suites judge each, under a key of its own."""

import json
import site
import venv

import pytest

from perfci.core.settings import load
from perfci.runs import experiment
from perfci.runs.plan import Request
from tests.git_repositories import begin_topic, commit_all
from tests.ops.test_discover import write_op

pytestmark = pytest.mark.slow

CASES = 2  # performance cases of each op of the demo


@pytest.fixture
def relu(project):
    """A project in which relu has a second backend: Triton's file under the name of PyTorch's."""
    add(project, "torch")
    return project


@pytest.fixture
def topic(relu):
    """On a branch that differs in nothing yet."""
    begin_topic(relu.root)
    return relu


def add(project, backend, before="", after=""):
    text = project.op_file("relu", "triton").read_text()
    project.op_file("relu", backend).write_text(text.replace(before, after) if before else text)


def accuracy(answer, op):
    return answer.rows[op, "accuracy", None]["verdict"]


def notes(answer):
    return {note["kind"]: note["facts"] for note in json.loads(answer.out)["notes"]}


def test_each_backend_is_judged_by_the_suites_of_the_op_and_alone_is_wrong_or_slow(topic):
    topic.edit("relu", "torch", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 340.0")
    commit_all(topic.root)

    answer = topic.check("relu")

    assert answer.code == 2
    assert answer.verdicts("relu") == {"UNCHANGED"}
    assert answer.verdicts("relu@torch") == {"PASS", "REGRESSED"}


def test_a_wrong_backend_that_a_change_adds_fails(topic):
    add(topic, "cuda", "np.maximum(x, 0, out=out)", "np.maximum(x, 0.01, out=out)")
    commit_all(topic.root)

    answer = topic.check()

    assert answer.code == 2
    assert accuracy(answer, "relu@cuda") == "WRONG"
    assert answer.verdicts("relu") == answer.verdicts("relu@torch") == {"UNCHANGED"}


@pytest.mark.parametrize("words", [["relu"], ["relu@cuda"]])
def test_a_backend_that_a_change_adds_is_judged_by_the_suites_of_the_base_and_beside_no_other_backend(topic, words):
    add(topic, "cuda", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 400.0")
    commit_all(topic.root)

    answer = topic.check(*words)

    assert answer.code == 0
    assert answer.verdicts("relu@cuda") == {"PASS", "NEW"}
    assert notes(answer)["backend_added"]["old"] == "relu"


def test_suites_that_a_change_weakens_do_not_let_a_wrong_backend_of_it_pass(topic):
    add(topic, "cuda", "np.maximum(x, 0, out=out)", "out[:] = x")
    topic.edit("relu", "accuracy", "    kernel=kernel,", '    kernel=kernel,\n    values=("ones",),')
    topic.edit("relu", "baseline", "rng.standard_normal(min(rows * cols, 8_192))", "np.ones(min(rows * cols, 8_192))")
    commit_all(topic.root)

    answer = topic.check("relu@cuda")

    assert answer.code == 2
    assert accuracy(answer, "relu@cuda") == "WRONG"


@pytest.mark.nightly
def test_shards_have_a_backend_that_a_change_adds_as_it_was_planned(topic):
    add(topic, "cuda")
    commit_all(topic.root)
    plan, runs = topic.root / "plan.json", topic.root / "runs"

    codes = [
        topic.perfci("ci", "plan", "--device", "fake", "--out", str(plan)).code,
        topic.perfci("check", "--plan", str(plan), "--shard", "1/1", "--device", "fake").code,
        topic.perfci("ci", "merge", "--plan", str(plan), str(topic.root / "reports"), "--out", str(runs)).code,
    ]

    assert codes == [0, 0, 0]


def test_a_backend_that_a_change_drops_is_removed(topic):
    topic.op_file("relu", "torch").unlink()
    commit_all(topic.root)

    answer = topic.check()

    assert answer.verdicts("relu@torch") == {"REMOVED"}
    assert answer.code == 3


def test_a_backend_without_its_package_is_unchecked_and_neither_fails_nor_warns(topic):
    for op in ("relu", "scale"):
        text = topic.op_file(op, "triton").read_text()
        topic.op_file(op, "tilelang").write_text(f"import tilelang.language as T\n{text}")
    commit_all(topic.root)

    answer = topic.check()

    assert answer.code == 0
    assert notes(answer)["backend_unchecked"]["op"] == "relu@tilelang, scale@tilelang"
    assert not answer.verdicts("relu@tilelang")


def test_an_op_that_a_change_moves_to_a_backend_that_cannot_run_here_is_an_error(topic):
    """It was checked until now: without a row it could be anything."""
    text = topic.op_file("scale", "triton").read_text()
    topic.op_file("scale", "triton").unlink()
    topic.op_file("scale", "tilelang").write_text(f"import tilelang.language as T\n{text}")
    for suite in ("accuracy", "performance"):
        topic.edit("scale", suite, "from scale_triton import", "from scale_tilelang import")
    commit_all(topic.root)

    answer = topic.check()

    assert (answer.code, answer.verdicts("scale")) == (2, {"ERROR"})


@pytest.mark.parametrize(
    "lie",
    ["raise ModuleNotFoundError('no numpy', name='numpy')", "import tilelang_helpers", "raise ImportError('tilelang')"],
)
def test_what_an_import_says_of_a_package_that_is_there_or_not_the_backends_excuses_nothing(topic, lie):
    add(topic, "tilelang", "import numpy as np\n", f"import numpy as np\n{lie}\n")
    commit_all(topic.root)

    answer = topic.check("relu")

    assert answer.code == 2
    assert answer.verdicts("relu@tilelang") == {"ERROR"}


@pytest.mark.nightly
def test_suites_that_name_no_backend_leave_the_others_unchanged_when_one_changes(relu):
    for part in ("accuracy", "performance"):
        relu.edit("relu", part, "from relu_triton import relu as kernel\n", "")
        relu.edit("relu", part, "kernel=kernel", "kernel=reference")
    begin_topic(relu.root)
    relu.edit("relu", "triton", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 300.0")
    commit_all(relu.root)

    answer = relu.check("relu")

    assert answer.verdicts("relu") == {"PASS", "IMPROVED"}
    assert answer.verdicts("relu@torch") == {"UNCHANGED"}


def test_the_first_backend_keeps_the_name_of_the_op_and_what_is_stored_under_it(relu):
    relu.first_check("--no-judge")
    relu.accept()
    stored = {path.name for path in (relu.root / "baselines").rglob("*.json")}
    relu.op_file("relu", "triton").unlink()
    for part in ("accuracy", "performance"):
        relu.edit("relu", part, "relu_triton", "relu_torch")

    answer = relu.check("relu", "--duel", "none")

    assert {"relu.json", "relu@torch.json"} <= stored
    assert {op for op, _, _ in answer.rows} == {"relu"}
    assert "NEW" not in answer.verdicts("relu")


@pytest.mark.nightly
def test_an_op_goes_on_under_another_name_with_each_of_its_backends(topic):
    topic.copy_op("relu", "clip")
    for path in topic.op_file("relu", "triton").parent.glob("*.py"):
        path.unlink()
    topic.edit("clip", "torch", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 340.0")
    commit_all(topic.root)

    answer = topic.check()

    before = {op.op: op.base.op for op in topic.run_record().plan.ops if op.op.startswith("clip")}
    assert before == {"clip": "relu", "clip@torch": "relu@torch"}
    assert "REGRESSED" not in answer.verdicts("clip")
    assert answer.verdicts("clip@torch") == {"PASS", "REGRESSED"}


@pytest.mark.parametrize("beside_a_base", [pytest.param(False, marks=pytest.mark.nightly), True])
def test_backends_are_timed_side_by_side_in_the_blocks_of_the_first_one(relu, beside_a_base):
    relu.edit("relu", "torch", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 288.0")
    add(relu, "tilelang", "import numpy as np\n", "import numpy as np\nimport tilelang\n")
    if beside_a_base:
        begin_topic(relu.root)
        relu.edit("relu", "triton", "import numpy as np\n", "import numpy as np\n\nMORE = 1\n")
        commit_all(relu.root)

    answer = relu.check("relu", "--backend", "all")

    assert answer.code == 0, answer.err
    for (op, suite, case), row in answer.rows.items():
        if (op, suite) == ("relu", "performance") and case:
            others = {peer["name"]: peer for peer in row["peers"]}
            assert others["relu@torch"]["faster"]
            assert others["relu@torch"]["ratio"]["value"] == pytest.approx(288 / 320, rel=0.02)
            assert others["relu@tilelang"]["reason"]["kind"] == "peer_unsupported"
            assert "No module named 'tilelang'" in others["relu@tilelang"]["reason"]["sentence"]
    text = (relu.root / "reports" / "report.md").read_text()
    section = text.partition("## Side by side")[2].partition("\n## ")[0]
    assert section.count("| relu@&#8203;torch |\n") == CASES
    if not beside_a_base:  # else nothing of what is unchanged is checked
        assert "relu: errors by backend" in section and "| `relu@torch` |" in section


@pytest.mark.parametrize(
    ("words", "checked"),
    [
        (["relu"], {"relu", "relu@torch"}),
        (["relu@torch"], {"relu@torch"}),
        (["relu@triton"], {"relu"}),
        (["--backend", "torch"], {"relu@torch"}),
        (["relu", "--backend", "triton,torch"], {"relu", "relu@torch"}),
        (["r*", "--backend", "triton"], {"relu", "row_sum"}),
    ],
)
def test_names_and_an_option_choose_backends(relu, words, checked):
    answer = relu.perfci("list", *words, "--device", "fake", "--format", "json")

    assert {op["op"] for op in json.loads(answer.out)} == checked


def test_a_list_says_which_backend_has_the_plain_name_of_an_op_with_several(relu):
    listed = relu.perfci("list", "--device", "fake").out.splitlines()

    assert [line.partition(":")[0] for line in listed if not line.startswith(" ")] == [
        "relu (relu@triton)", "relu@torch", "row_sum", "scale",
    ]  # fmt: skip


def test_a_backend_that_is_not_there_is_met_with_those_that_are(relu):
    answer = relu.perfci("list", "relu@cuda", "--device", "fake")

    assert answer.code == 1
    assert "triton, torch" in answer.err


DOUBLE = {
    "torch": "def double(x):\n    return x {}\n",
    "baseline": "import torch\n\n\ndef double(x):\n    return x * 2\n\n\ndef make_inputs(rows, dtype, device, seed):\n"
    "    generator = torch.Generator(device).manual_seed(seed)\n"
    "    return {'x': torch.randn(rows, generator=generator, dtype=dtype, device=device)}\n",
    "accuracy": "import perfci\nimport torch\nfrom double_baseline import double as reference, make_inputs\n"
    "from double_torch import double as kernel\n\n"
    "cases = perfci.grid(rows=[7], dtype=[torch.float32])\n"
    "accuracy = perfci.Accuracy(kernel, reference, make_inputs, cases)\n",
    "performance": "import perfci\nfrom double_torch import double as kernel\n"
    "from double_accuracy import cases, make_inputs, reference\n\n"
    "performance = perfci.Performance(kernel, reference, make_inputs, cases)\n",
}


@pytest.fixture
def double(project):
    """A function that adds an op without a Triton file: x and what `body` does with it, in PyTorch."""

    def add(body):
        folder = write_op(project.root / "kernels", "double", **{**DOUBLE, "triton": ""})
        (folder / "double_triton.py").unlink()
        (folder / "double_torch.py").write_text(DOUBLE["torch"].format(body))
        return folder

    return add


@pytest.mark.torch
@pytest.mark.parametrize(
    ("body", "verdict", "code"), [pytest.param("+ x", "PASS", 0, marks=pytest.mark.nightly), ("* 3", "WRONG", 2)]
)
def test_an_op_without_a_triton_file_is_judged_on_the_cpu_though_it_launches_no_kernel(
    project, double, body, verdict, code
):
    (double(body) / "double_cutile.py").write_text("import cuda.tile\n")

    answer = project.perfci("check", "double", "--device", "cpu", "--format", "json")

    assert answer.code == code, answer.err
    assert accuracy(answer, "double") == verdict
    assert notes(answer)["backend_unchecked"]["op"] == "double@cutile"


@pytest.mark.torch
def test_helion_is_asked_to_interpret_where_triton_is_for_the_others_and_refuses_both(project, double):
    asked = "import os\nassert [os.environ[name] for name in ('HELION_INTERPRET', 'TRITON_INTERPRET')] == ['1', '0']\n"
    folder = double("+ x")
    (folder / "double_helion.py").write_text(asked + (folder / "double_torch.py").read_text())

    answer = project.perfci("check", "double", "--device", "cpu", "--format", "json")

    assert (accuracy(answer, "double"), accuracy(answer, "double@helion")) == ("PASS", "PASS")


@pytest.mark.torch
@pytest.mark.parametrize("elsewhere", [True, False])
def test_a_plan_for_other_machines_has_the_cases_of_what_this_one_cannot_run(project, double, elsewhere):
    folder = double("+ x")
    (folder / "double_cutile.py").write_text((folder / "double_torch.py").read_text())

    request = Request(("double@cutile",), device="cpu", elsewhere=elsewhere)
    (op,) = experiment.describe(load(project.root), request, lambda _: None).ops

    assert op.unchecked is not elsewhere
    assert bool(op.performance) is elsewhere


@pytest.fixture(scope="module")
def other_python(tmp_path_factory):
    """An environment with a package that this one lacks."""
    home = tmp_path_factory.mktemp("env")
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    (packages / "ours.pth").write_text("\n".join(site.getsitepackages()))
    (packages / "tilelang").mkdir()
    (packages / "tilelang/__init__.py").write_text("LEAST = 0\n")
    (packages / "tilelang-9.9.dist-info").mkdir()
    (packages / "tilelang-9.9.dist-info/METADATA").write_text("Name: tilelang\nVersion: 9.9\n")
    return home / "bin" / "python"


def give_python(project, python, backend="tilelang"):
    file = project.root / "pyproject.toml"
    file.write_text(f'{file.read_text()}\n[tool.perfci.backends.{backend}]\npython = "{python}"\n')


@pytest.fixture
def apart(project, other_python):
    """On a branch of a project with a backend that only another environment can run."""
    text = project.op_file("relu", "triton").read_text()
    text = text.replace("np.maximum(x, 0, out=out)", "np.maximum(x, tilelang.LEAST, out=out)")
    project.op_file("relu", "tilelang").write_text(f"import tilelang\n{text}")
    give_python(project, other_python)
    begin_topic(project.root)
    return project


@pytest.mark.nightly
def test_a_backend_with_an_environment_of_its_own_is_judged_there_beside_its_base(apart):
    apart.edit("relu", "tilelang", "US_PER_MEGABYTE = 320.0", "US_PER_MEGABYTE = 340.0")
    commit_all(apart.root)

    answer = apart.check("relu")

    assert answer.verdicts("relu@tilelang") == {"PASS", "REGRESSED"}
    assert answer.verdicts("relu") == {"UNCHANGED"}
    assert answer.code == 2


@pytest.mark.nightly
def test_a_backend_with_an_environment_of_its_own_is_wrong_there(apart):
    apart.edit("relu", "tilelang", "tilelang.LEAST, out", "tilelang.LEAST + 0.01, out")
    commit_all(apart.root)

    answer = apart.check("relu@tilelang")

    assert (answer.code, accuracy(answer, "relu@tilelang")) == (2, "WRONG")


@pytest.mark.parametrize(
    ("python", "kind", "said"),
    [
        ("envs/tilelang/bin/python", "No such file", "envs/tilelang/bin/python"),
        pytest.param("/bin/true", "no Python", "/bin/true", marks=pytest.mark.nightly),
    ],
)
def test_an_environment_that_is_not_there_leaves_its_backend_unchecked(project, python, kind, said):
    add(project, "tilelang", "import numpy as np\n", "import numpy as np\nimport tilelang\n")
    give_python(project, python)
    begin_topic(project.root)

    answer = project.check("relu")
    listed = project.perfci("list", "relu")

    assert answer.code == 0 and not answer.verdicts("relu@tilelang")
    for text in (answer.out, listed.out):
        assert kind in text and said in text


@pytest.mark.nightly
def test_an_environment_without_the_package_says_what_to_install_there_and_a_lie_excuses_nothing(apart, other_python):
    add(apart, "cutile", "import numpy as np\n", "import numpy as np\nimport cuda.tile\n")
    give_python(apart, other_python, "cutile")
    apart.edit("relu", "tilelang", "import tilelang\n", "raise ModuleNotFoundError('no', name='tilelang')\n")
    commit_all(apart.root)

    answer = apart.check("relu")

    assert f"{other_python} -m pip install 'cuda-tile[tileiras]'" in answer.out
    assert answer.verdicts("relu@tilelang") == {"ERROR"}


def test_doctor_says_what_an_environment_has_and_what_it_lacks(apart, other_python):
    give_python(apart, other_python, "cutile")
    give_python(apart, "nowhere/python", "helion")

    answer = apart.perfci("doctor", "--format", "json")

    told = {row["reason"]["kind"]: row["reason"]["sentence"] for row in json.loads(answer.out)}
    assert "tilelang 9.9" in told["doctor_backend_python"]
    assert f"{other_python} -m pip install 'cuda-tile[tileiras]'" in told["doctor_backend_python_lacks"]
    assert f"{apart.root}/nowhere/python" in told["doctor_backend_python_broken"]


def test_settings_of_a_backend_that_perfci_does_not_have_are_an_error(project):
    give_python(project, "python3", "tileland")

    answer = project.perfci("list")

    assert answer.code == 1 and "backends.tileland" in answer.err


@pytest.mark.nightly
def test_in_a_pipeline_the_interpreter_is_the_one_that_the_base_names(apart, other_python, monkeypatch):
    file = apart.root / "pyproject.toml"
    file.write_text(file.read_text().replace(str(other_python), "/bin/true"))
    commit_all(apart.root)
    monkeypatch.setenv("CI", "true")

    answer = apart.check("relu@tilelang", "--against", "main")

    assert answer.verdicts("relu@tilelang") == {"UNCHANGED"}
