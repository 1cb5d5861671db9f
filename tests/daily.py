"""Which rows of a large table of tests every run has."""

import pytest


def first_daily(rows, kind, name):
    """A test's parameters. The first row of each kind is for every run, the others are for the nightly one."""
    kinds, params = set(), []
    for row in rows:
        marks = [pytest.mark.nightly] if kind(*row) in kinds else []
        params.append(pytest.param(*row, id=name(*row), marks=marks))
        kinds.add(kind(*row))
    return params
