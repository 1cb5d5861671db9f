"""The search spaces of the project's ops: sound, and wide enough for the current configurations."""

from pathlib import Path

import pytest

from perfci.extensions.common.targets import TARGETS
from perfci.extensions.lab.tune.files import (
    list_regimes,
    pick_fixed,
    read_numbers,
    read_space,
    read_tuned,
)
from perfci.extensions.lab.tune.records import Choices

KERNELS = Path(__file__).resolve().parents[2] / "kernels"
OPS = sorted(path.parent.parent.name for path in KERNELS.glob("*/tuned/space.json"))
DEVICES = ("nvidia-h200", "nvidia-h100", "nvidia-a100")


def made(op, device):
    """Regimes of an op on a device, each with its grid."""
    folder = KERNELS / op
    space, names = read_space(op, folder), read_numbers(KERNELS, device)
    for regime in list_regimes(space, read_tuned(folder / "tuned" / f"{device}.json").entries):
        known = {**names, **pick_fixed(regime.when)}
        yield (
            regime,
            Choices(regime.lists, lambda config, k=known: space.is_valid(config, k), 7, regime.current),
        )


def test_every_op_with_configurations_to_choose_declares_what_they_may_be():
    tuned = {path.parent.parent.name for path in KERNELS.glob("*/tuned/nvidia-*.json")}

    assert tuned | {"softmax", "bias_relu", "broadcast"} <= {*OPS}


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("device", DEVICES)
def test_every_entry_has_candidates_on_every_device_that_can_run_it(op, device):
    if op.startswith("fp8") and not read_numbers(KERNELS, device)["float8"]:
        pytest.skip("no float8 there")
    lacking = [regime for regime, grid in made(op, device) if not grid.coarse]

    # Entries of tiles by descriptor serve no call on a device that has none.
    descriptors = read_numbers(KERNELS, device)["descriptors"]
    assert all(not descriptors and regime.lists.get("tma") == (True,) for regime in lacking)


@pytest.mark.parametrize("op", OPS)
def test_what_is_in_force_keeps_to_the_rules_and_lies_in_the_lists(op):
    for regime, grid in made(op, "nvidia-h200"):
        if regime.current is not None:
            assert grid.is_valid(regime.current), regime.label
            outside = {name: value for name, value in regime.current.items() if value not in grid.lists.get(name, ())}
            assert not outside, regime.label


@pytest.mark.parametrize("op", OPS)
def test_candidates_keep_shared_memory_and_tiles_within_the_device(op):
    block = TARGETS["sm_90"].shared_block
    for _, grid in made(op, "nvidia-h200"):
        for config in grid.coarse:
            assert config.get("stages", 1) * config.get("block_m", 0) * config.get("block_k", 0) <= block
