"""Fixtures that tests of extensions share with those of the gate."""

from tests.cli.conftest import root
from tests.flow.conftest import editable, measured, project

__all__ = ["editable", "measured", "project", "root"]
