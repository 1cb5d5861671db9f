"""torch.npu.utils of the stand-in."""

import os


def get_cann_version(module="CANN"):
    return os.environ.get("NPU_STAND_IN_CANN", "8.5.0")
