"""An imitation of a library's file with a function that has no operator of its name in torch."""


def _unit_acosh(x):
    return x
