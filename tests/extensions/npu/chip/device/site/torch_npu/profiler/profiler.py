"""torch_npu.profiler.profiler of the stand-in."""


def analyse(profiler_path, max_process_number=4, export_type=None):
    """The offline parser: what it could not make at first it can't make later."""
