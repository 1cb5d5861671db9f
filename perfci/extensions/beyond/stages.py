"""Stages of this extension's workers, and their lines of progress."""

from collections.abc import Mapping

from perfci.core.wording import say


def describe_stages() -> Mapping[str, str]:
    """Stages of this extension's workers, and their lines of progress."""
    return {
        "shrink": say("shrinking the wrong case"),
        "properties": say("what its suite states"),
        "gradients": say("gradients"),
        "sanitize": say("under a sanitizer"),
        "formula": say("its formula"),
        "repeats": say("the same call many times"),
        "structure": say("sizes and places by the kernel's structure"),
        "configurations": say("its configurations"),
    }
