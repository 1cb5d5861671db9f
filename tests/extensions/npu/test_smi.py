"""What npu-smi prints, in the layouts of several releases; see npu_smi_samples/README.txt for where they come from."""

from pathlib import Path

import pytest

from perfci.core.model import DeviceState
from perfci.extensions.npu import smi
from perfci.extensions.npu.smi import (
    MEGABYTE,
    Monitor,
    NpuChip,
    NpuPlace,
    NpuProcess,
    NpuTable,
    count_foreign,
    parse_fields,
    parse_info,
    parse_mapping,
    visible_number,
)

SAMPLES = Path(__file__).parent / "npu_smi_samples"
INFOS = sorted(path.name for path in SAMPLES.glob("info_*.txt"))


def sample(name):
    return (SAMPLES / name).read_text()


# --- tables -----------------------------------------------------------------------------------------------------------


def test_release_21_has_cards_that_are_not_counted_from_nought_and_no_processes():
    table = parse_info(sample("info_21.0.2_910a.txt"))

    assert table == NpuTable(
        driver="21.0.2",
        chips=(
            NpuChip(NpuPlace(1, 0), "910A", "OK", 64.3, 56, 0, 32768 * MEGABYTE),
            NpuChip(NpuPlace(4, 0), "910A", "Warning", 65.6, 58, 12 * MEGABYTE, 32768 * MEGABYTE),
        ),
        processes=None,
    )


def test_release_25_has_two_chips_a_card_and_numbers_of_processes_in_containers():
    table = parse_info(sample("info_25.5.1_910_two_chips.txt"))

    assert [(chip.place, chip.power_w) for chip in table.chips] == [(NpuPlace(0, 0), 178.5), (NpuPlace(0, 1), None)]
    assert table.processes == (NpuProcess(NpuPlace(0, 0), 632268, None), NpuProcess(NpuPlace(0, 1), 632270, 4711))


@pytest.mark.parametrize("name", INFOS)
def test_output_that_is_cut_off_anywhere_is_read_as_far_as_it_goes_and_never_raises(name):
    whole = sample(name)
    chips = parse_info(whole).chips

    for end in range(0, len(whole), 37):
        seen = parse_info(whole[:end])
        assert len(seen.chips) <= len(chips)
        assert {chip.place for chip in seen.chips} <= {chip.place for chip in chips}


def test_logical_numbers_are_mapped_with_and_without_a_column_of_physical_ones():
    assert parse_mapping(sample("mapping_25.txt")) == {0: NpuPlace(0, 0), 1: NpuPlace(0, 1), 2: NpuPlace(1, 0)}
    assert parse_mapping(sample("mapping_23.txt")) == {0: NpuPlace(4, 0)}


def test_each_chip_of_a_card_has_its_own_fields():
    text = sample("common_two_chips.txt")

    assert [parse_fields(text, chip)["Aicore curFreq(MHZ)"] for chip in (0, 1)] == ["800", "1650"]


# --- a chip -----------------------------------------------------------------------------------------------------------


def monitor(answers, visible=None):
    given = {} if visible is None else {smi.VISIBLE: visible}
    calls = []

    def asking(*arguments):
        calls.append(" ".join(arguments))
        name = answers.get(calls[-1])
        return sample(name) if name else None

    made = Monitor(asking, given)
    made.calls = calls
    return made


ANSWERS = {
    "info": "info_23.0.7_910b3.txt",
    "info -t common -i 1": "common_24.txt",
    "info -t board -i 1": "board_card.txt",
    "info -t board -i 1 -c 0": "board_chip.txt",
}


def test_a_process_that_is_given_the_second_device_reads_the_second_chip():
    chip = monitor(ANSWERS, visible="1")

    assert chip.place == NpuPlace(1, 0)
    assert chip.state() == DeviceState(
        sm_clock_mhz=800, temperature_c=54, power_w=97.6, foreign_processes=1, memory_used_bytes=41046 * MEGABYTE
    )
    assert chip.rated_mhz() == 1800
    assert chip.serial() == "0A1B2C3D112233445566778899AABBCCDDEEFF00"


def test_the_map_of_logical_numbers_goes_before_the_order_of_the_table():
    mapped = monitor({"info": "info_25.5.1_910_two_chips.txt", "info -m": "mapping_25.txt"}, visible="1,0")
    unmapped = monitor({"info": "info_25.5.1_910_two_chips.txt"}, visible="1,0")

    assert mapped.place == unmapped.place == NpuPlace(0, 1)
    assert monitor({"info -m": "mapping_25.txt"}, visible="7").place is None


def test_without_the_tool_everything_is_unknown():
    chip = monitor({})

    assert chip.state() == DeviceState()
    assert (chip.serial(), chip.clock_mhz()) == (None, None)


@pytest.mark.parametrize(
    ("listed", "number"), [("", 0), ("4,5", 4), (" 6 , 7 ", 6), ("x", None), ("-1", None), ("0.5", None)]
)
def test_the_variable_names_logical_devices(listed, number):
    assert visible_number({smi.VISIBLE: listed}) == number


# --- processes of others ----------------------------------------------------------------------------------------------


def table(*processes):
    return NpuTable(chips=(NpuChip(NpuPlace(0), "910B2", "OK"),), processes=processes)


def test_this_process_is_no_stranger_by_either_of_its_numbers():
    assert count_foreign(table(NpuProcess(NpuPlace(0), 7), NpuProcess(NpuPlace(0), 9)), NpuPlace(0), 7) == 1
    assert count_foreign(table(NpuProcess(NpuPlace(0), 5000, 7), NpuProcess(NpuPlace(0), 5001, 9)), NpuPlace(0), 7) == 1


def test_in_a_container_one_of_the_strangers_is_this_process():
    assert count_foreign(table(NpuProcess(NpuPlace(0), 5000), NpuProcess(NpuPlace(0), 5001)), NpuPlace(0), 7) == 1
    assert count_foreign(table(NpuProcess(NpuPlace(0), 5000)), NpuPlace(0), 7, own_context=False) == 1
    assert count_foreign(table(), NpuPlace(0), 7) == 0
