"""Stages of this extension's workers, and their lines of progress."""

from collections.abc import Mapping

from perfci.core.wording import say


def describe_stages() -> Mapping[str, str]:
    """Stages of this extension's workers, and their lines of progress."""
    return {
        "group": say("the ranks find each other"),
        "ranks accuracy": say("accuracy on all ranks"),
        "ranks measure": say("measuring all ranks"),
    }
