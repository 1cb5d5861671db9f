from pathlib import Path

import pytest

from perfci.core.errors import ContractError, UsageError
from perfci.core.model import Reason
from perfci.core.settings import Settings, load
from perfci.ops.discover import OpFolder, check_contract, check_files, ops, select

SOURCES = {
    "triton": "import torch\n\n\ndef {op}(x, bias):\n    return x\n",
    "baseline": "def {op}(x, bias):\n    return x\n\n\ndef make_inputs(rows, *, device, seed):\n    return {{}}\n",
    "accuracy": "import perfci\n\naccuracy = perfci.Accuracy()\n",
    "performance": "import perfci\n\nperformance = perfci.Performance()\n",
}


def write_op(kernels: Path, op: str, **sources: str) -> Path:
    """An op that keeps the contract, except in the replaced files."""
    folder = kernels / op
    folder.mkdir(parents=True)
    for part, text in SOURCES.items():
        (folder / f"{op}_{part}.py").write_text(sources.get(part, text.format(op=op)))
    return folder


@pytest.fixture
def settings(tmp_path) -> Settings:
    (tmp_path / "kernels").mkdir()
    return load(tmp_path)


def one(settings: Settings, **sources: str) -> OpFolder:
    write_op(settings.kernels, "softmax", **sources)
    return ops(settings)[0]


def only(reasons: tuple[Reason, ...]) -> Reason:
    assert len(reasons) == 1, reasons
    return reasons[0]


def test_ops_are_the_folders_with_python_files_by_name(settings):
    for name in ("softmax", "broadcast"):
        write_op(settings.kernels, name)
    (settings.kernels / "empty").mkdir()

    listed = ops(settings)

    assert [op.op for op in listed] == ["broadcast", "softmax"]
    assert listed[1].files == tuple(
        settings.kernels / "softmax" / f"softmax_{part}.py"
        for part in ("triton", "baseline", "accuracy", "performance")
    )


def test_modules_of_a_group_do_not_hide_its_ops(settings):
    write_op(settings.kernels / "attention", "paged")
    (settings.kernels / "attention" / "masks.py").write_text("")
    (settings.kernels / "attention" / "__init__.py").write_text("")

    assert [op.place for op in ops(settings)] == ["attention/paged"]


def test_a_folder_with_python_files_of_other_names_is_a_broken_op(settings):
    (settings.kernels / "softmax" / "tools").mkdir(parents=True)
    for place in ("softmx_triton.py", "tools/sweep.py"):
        (settings.kernels / "softmax" / place).write_text("")

    (op,) = ops(settings)

    assert (op.op, check_files(op).kind) == ("softmax", "file_of_four_missing")


@pytest.mark.parametrize("name", ["_shared", ".hidden", "__pycache__"])
def test_folders_set_aside_are_passed_over(settings, name):
    write_op(settings.kernels, name)

    assert ops(settings) == ()


def test_two_ops_of_one_name_are_refused_with_both_folders(settings):
    first, second = (write_op(settings.kernels / group, "softmax") for group in ("a", "b"))

    with pytest.raises(ContractError) as caught:
        ops(settings)

    assert caught.value.reason.facts == {"op": "softmax", "first": str(first), "second": str(second)}


def test_a_project_without_its_kernels_folder_is_told_so(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[tool.perfci]\nkernels = "ops"\n')

    with pytest.raises(UsageError) as caught:
        ops(load(tmp_path))

    assert caught.value.reason == Reason("no_kernels_folder", {"folder": str(tmp_path / "ops")})


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("paged", ["paged"]),
        ("attention/paged", ["paged"]),
        ("attention", ["flash", "paged"]),
        ("attention/", ["flash", "paged"]),
        ("norm", ["norm"]),
        ("*a*", ["flash", "paged"]),
        ("[mn]orm", ["norm"]),
    ],
)
def test_ops_are_named_by_name_folder_group_or_glob_and_a_name_comes_first(settings, name, chosen):
    for place in ("attention/paged", "attention/flash", "norm/norm", "norm/rms"):
        write_op(settings.kernels / Path(place).parent, Path(place).name)

    assert [op.op for op in select(settings, [name])] == chosen


def test_a_glob_that_fits_no_op_is_refused(settings):
    write_op(settings.kernels, "softmax")

    with pytest.raises(UsageError):
        select(settings, ["fp8_*"])


def test_a_misspelt_op_is_met_with_a_guess(settings):
    write_op(settings.kernels, "softmax")

    with pytest.raises(UsageError) as caught:
        select(settings, ["sofmax"])

    assert caught.value.reason == Reason("op_misspelt", {"op": "sofmax", "guess": "softmax"})


@pytest.mark.parametrize("part", SOURCES)
def test_a_missing_file_of_the_four_is_named(settings, part):
    op = one(settings)
    (op.folder / f"softmax_{part}.py").unlink()

    assert check_files(op).facts["files"] == f"softmax_{part}.py"


def test_a_wrapper_that_shadows_its_kernel_is_named_with_both_lines(settings):
    op = one(settings, triton="def softmax(x, bias):\n    pass\n\n\ndef softmax(x, bias):\n    pass\n")

    reason = only(check_contract(op))

    assert reason.kind == "function_shadowed"
    assert (reason.facts["line"], reason.facts["first"]) == (5, 1)


@pytest.mark.parametrize(
    "line", ["import perfci", "from perfci import grid", "import perfci.ops.spec", "from perfci.device import cuda"]
)
def test_a_kernel_that_imports_perfci_is_named(settings, line):
    reason = only(check_contract(one(settings, triton=f"{line}\n" + SOURCES["triton"].format(op="softmax"))))

    assert reason.kind == "imports_perfci"
    assert reason.facts["line"] == 1


@pytest.mark.parametrize("line", ["from perfci.device.fake import work", "from perfci.device import fake"])
def test_ops_for_the_fake_device_may_import_it(settings, line):
    assert check_contract(one(settings, triton=f"{line}\n" + SOURCES["triton"].format(op="softmax"))) == ()


def test_a_folder_whose_name_is_no_identifier_is_named(settings):
    write_op(settings.kernels, "soft-max", triton="", baseline="")

    assert check_files(ops(settings)[0]).kind == "op_name"


def test_a_link_out_of_the_project_is_not_looked_into(settings):
    folder = write_op(settings.kernels, "softmax")
    for name, target in (("machine", "/"), ("processes", "/proc/self"), ("beside", settings.kernels)):
        (folder / name).symlink_to(target)

    assert [op.op for op in ops(settings)] == ["softmax"]


def test_an_op_has_a_key_for_each_of_its_backends_and_the_first_one_has_its_plain_name(settings):
    folder = write_op(settings.kernels, "softmax")
    for backend in ("torch", "cuda", "v1_cuda"):  # the last is a sketch
        (folder / f"softmax_{backend}.py").write_text("")

    assert {op.op: op.files[0].name for op in ops(settings)} == {
        "softmax": "softmax_triton.py",
        "softmax@cuda": "softmax_cuda.py",
        "softmax@torch": "softmax_torch.py",
    }


def test_the_first_backend_is_the_one_that_the_suites_import_where_they_import_any(settings):
    folder = write_op(settings.kernels, "softmax", performance="from softmax_torch import softmax as kernel\n")
    (folder / "softmax_torch.py").write_text("")

    assert [(op.op, op.backend) for op in ops(settings)] == [("softmax", "torch"), ("softmax@triton", "triton")]


def test_of_several_backends_an_op_gives_those_that_it_has_and_one_that_none_has_is_refused(settings):
    write_op(settings.kernels, "softmax")
    write_op(settings.kernels, "matmul")
    (settings.kernels / "softmax/softmax_cuda.py").write_text("")

    both = select(settings, ["matmul@triton,cuda", "softmax@triton,cuda"])

    assert [op.op for op in both] == ["matmul", "softmax", "softmax@cuda"]
    for names, name in ((["matmul@triton,cuda"], "matmul"), (["*@cuda,helion"], "*"), (["matmul@cuda"], "matmul")):
        with pytest.raises(UsageError) as refused:
            select(settings, names)
        assert (refused.value.reason.kind, refused.value.reason.facts["name"]) == ("backend_unknown", name)
