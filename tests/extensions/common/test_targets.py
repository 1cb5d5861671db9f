import pytest

from perfci.core.errors import UsageError
from perfci.extensions.common.targets import TARGETS, target_named


def test_an_unknown_target_is_a_usage_error():
    with pytest.raises(UsageError) as caught:
        target_named("sm_9")

    assert caught.value.reason.facts["target"] == "sm_9"
    assert "gfx942" in caught.value.reason.facts["known"]


@pytest.mark.torch
@pytest.mark.cuda
def test_the_boards_own_runtime_agrees():
    import torch

    properties = torch.cuda.get_device_properties(0)
    target = TARGETS.get(f"sm_{properties.major}{properties.minor}")
    if target is None:
        return  # an architecture without facts
    assert properties.max_threads_per_multi_processor == target.threads
    assert properties.regs_per_multiprocessor == target.registers
    assert properties.shared_memory_per_multiprocessor == target.shared_processor
    assert properties.shared_memory_per_block_optin == target.shared_block
    if properties.name == target.board:
        assert properties.multi_processor_count == target.processors
        assert properties.L2_cache_size == target.l2_bytes
        for name, value in (
            ("total_memory", target.memory_bytes),
            ("clock_rate", target.clock_khz),
            ("memory_clock_rate", target.memory_clock_khz),
            ("memory_bus_width", target.bus_bits),
        ):
            if value is not None and hasattr(properties, name):
                assert getattr(properties, name) == value, name
