"""Stages of this extension's workers, and their lines of progress."""

from collections.abc import Mapping

from perfci.core.wording import say


def describe_stages() -> Mapping[str, str]:
    """Stages of this extension's workers, and their lines of progress."""
    return {
        "tune": say("trying"),
        "chain": say("checking the chain"),
        "threads": say("two threads at once"),
        "memory": say("memory over many calls"),
        "decay": say("speed over many calls"),
        "determinism": say("the same answer over many calls"),
        "streams": say("several streams at once"),
        "large": say("arrays of more than 2^31 elements"),
    }
