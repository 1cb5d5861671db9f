"""Arrays that lie in memory as no suite has them: unaligned, with gaps along each axis, far apart."""

import math
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch

from perfci.device import open_device  # noqa: E402 - which imports torch
from perfci.extensions.beyond import structure  # noqa: E402
from perfci.extensions.beyond.structure import FAR, OFFSETS, UnfitError, check_placed, list_placed, shift, spread  # noqa: E402
from perfci.extensions.beyond.work import Look  # noqa: E402
from perfci.measure.search import list_candidates  # noqa: E402
from perfci.ops.spec import Accuracy, grid  # noqa: E402

CASES = grid(rows=[5], cols=[9], dtype=[torch.float16])
HERE = Path(__file__).parent


def describe(error):
    return {"error": type(error).__name__, "message": str(error)}


def make_inputs(rows, cols, dtype, device, seed):
    generator = torch.Generator(device).manual_seed(seed)
    return {"x": torch.randn(rows, cols, generator=generator, dtype=dtype, device=device)}


def double(x):
    return 2 * x


def find(kernel, **stated):
    suite = Accuracy(kernel, double, make_inputs, CASES, **stated)
    device = open_device("cpu", seed=0)
    checked = (check_placed(suite, device, CASES[0], placed, describe) for placed in list_placed(suite))
    return [result.failure.facts["placed"] for result in checked if result]


def test_a_right_kernel_passes_wherever_its_arrays_lie():
    assert find(double) == []


def test_a_kernel_that_takes_addresses_for_aligned_is_found():
    def reads_from_the_aligned_place(x):
        """As a vector load does that drops the lowest bits of an address."""
        place = x.storage_offset() // 8 * 8
        return 2 * torch.as_strided(x, x.shape, x.stride(), place)

    assert find(reads_from_the_aligned_place) == [OFFSETS[2], OFFSETS[4], OFFSETS[8]]


def test_a_stride_that_is_taken_for_another_is_found_where_the_suite_has_gaps():
    def takes_rows_for_dense(x):
        return 2 * torch.as_strided(x, x.shape, (x.shape[1], x.stride(1)), x.storage_offset())

    assert "gaps along the second axis" in find(takes_rows_for_dense)
    assert find(takes_rows_for_dense, layouts=("contiguous",)) == []


def test_a_suite_that_is_pitched_alone_has_rows_without_gaps_and_vectors_too():
    def takes_elements_for_dense(x):
        return 2 * torch.as_strided(x, x.shape, (*x.stride()[:-1], 1), x.storage_offset())

    names = [placed.name for placed in list_placed(Accuracy(double, double, make_inputs, CASES, layouts=("pitched",)))]

    assert find(takes_elements_for_dense, layouts=("contiguous", "pitched")) == []
    assert "gaps along the second axis" in find(takes_elements_for_dense)
    assert "gaps along the first axis" in names
    with pytest.raises(UnfitError):
        spread(1, torch.zeros(5))


@pytest.mark.nightly
def test_an_op_around_a_kernel_of_another_file_has_the_same_bank_of_sizes_and_places(tmp_path):
    folder, library = tmp_path / "kernels" / "twice", tmp_path / "lib"
    folder.mkdir(parents=True)
    library.mkdir()
    (tmp_path / "pyproject.toml").write_text("[tool.perfci]\n")
    (library / "theirs.py").write_text("def twice(x, block=96):\n    return 2 * x\n")
    (folder / "twice_triton.py").write_text(
        "from lib.theirs import twice as source\n\n\ndef twice(x):\n    return source(x)\n"
    )
    (folder / "twice_baseline.py").write_text(
        "import torch\n\n\ndef twice(x):\n    return 2 * x\n\n\ndef make_inputs(n, device, seed):\n"
        "    return {'x': torch.randn(n, device=device)}\n"
    )
    for name in ("Accuracy", "Performance"):
        (folder / f"twice_{name.lower()}.py").write_text(
            "import perfci\nfrom twice_baseline import make_inputs, twice as reference\n"
            f"from twice_triton import twice as kernel\n{name.lower()} = perfci.{name}(\n    kernel=kernel, "
            "reference=reference, make_inputs=make_inputs, cases=perfci.grid(n=[3, 5])\n)\n"
        )
    probe = (
        "import sys\nfrom pathlib import Path\nfrom perfci.extensions.beyond.structure import list_placed\n"
        "from perfci.measure.search import list_candidates\nfrom perfci.worker.load import load_op\n"
        "folder = Path('kernels/twice').resolve()\nsuite = load_op('twice', folder, folder.parent).accuracy\n"
        "sizes = [check.params['n'] for check in list_candidates(suite, 0, None, duel=False)]\n"
        "print({95, 96, 97} <= {*sizes}, len(list(list_placed(suite))))\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["True", "10"]


def test_places_past_32_bits_are_reached_by_few_elements():
    def wraps(x):
        """A place computed in 32 bits, from which no element is read that is not there."""
        places = (torch.arange(len(x)) * x.stride(0)).to(torch.int32)
        return 2 * x * (places >= 0)[:, None]

    def wraps_along_rows(x):
        places = (torch.arange(x.shape[1]) * x.stride(1)).to(torch.int32)
        return 2 * x * (places >= 0)

    assert find(wraps) == ["rows 2^30 elements apart"]
    assert find(wraps_along_rows) == ["columns that reach past 2^31"]
    assert find(wraps_along_rows, layouts=("contiguous", "pitched")) == []


def test_what_a_kernel_refuses_is_no_fault():
    def refuses(x):
        if not x.is_contiguous() or x.data_ptr() % 16:
            raise ValueError("x has to be dense and aligned")
        return 2 * x

    assert find(refuses) == []


def test_arrays_hold_the_same_values_at_the_place_asked_for():
    x = torch.randn(4, 3)

    assert torch.equal(shift(4, x), x)
    assert shift(4, x).data_ptr() % 16 == 4
    assert torch.equal(spread(0, x), x)
    assert spread(1, x).stride() == (FAR, 1)
    assert torch.equal(structure.spread_columns(x), x)
    assert structure.spread_columns(x).stride() == (1, FAR + 1)
    with pytest.raises(UnfitError):
        shift(2, x)


def test_each_size_and_place_is_named_before_it_is_tried_so_that_a_long_stage_is_not_taken_for_a_hang():
    suite, sent, look = Accuracy(double, double, make_inputs, CASES), [], Look.__new__(Look)
    look._task, look._channel = SimpleNamespace(op="op", seed=0, pattern=None), SimpleNamespace(send=sent.append)
    look._device, look._loaded, look._describe = open_device("cpu", seed=0), SimpleNamespace(accuracy=suite), describe

    assert list(look._check_structure()) == []
    candidates = list_candidates(suite, 0, None, duel=False)
    assert len(sent) == 1 + len(candidates) + len(list(list_placed(suite)))
    assert {f"{check.case}, {check.values}" for check in candidates} <= {doing.case for doing in sent}


def test_what_is_wrong_where_arrays_lie_so_is_shrunk_to_the_least_case_with_lines_that_make_it():
    def wraps_along_rows(x):
        places = (torch.arange(x.shape[1]) * x.stride(1)).to(torch.int32)
        return 2 * x * (places >= 0)

    suite, look = Accuracy(wraps_along_rows, double, make_inputs, CASES), Look.__new__(Look)
    place = SimpleNamespace(root=HERE)
    look._task = SimpleNamespace(op="double", seed=0, pattern=None, folder=HERE, shared_folder=HERE, place=place)
    look._device, look._channel = open_device("cpu", seed=0), SimpleNamespace(send=lambda _: None)
    look._loaded, look._describe, look._until_s = SimpleNamespace(accuracy=suite), describe, math.inf
    sys.modules["double_accuracy"] = SimpleNamespace(accuracy=suite)
    try:
        *_, least = look._check_structure()
    finally:
        del sys.modules["double_accuracy"]

    facts = least.failure.facts
    assert (least.case, facts["origin"]) == ("rows=1,cols=3,dtype=float32", "rows=5,cols=9,dtype=float16")
    assert facts["placed"] == "columns that reach past 2^31"
    lines = facts["python"].splitlines()
    given = {"suite": suite, "kernel": wraps_along_rows, "torch": torch}
    exec("\n".join(lines[3:]), given)  # the first three open the op's file
    assert len(lines) == 5
    assert given["kernel"](**given["inputs"]).tolist() == [[*(2 * given["inputs"]["x"][0, :2]).tolist(), 0.0]]
