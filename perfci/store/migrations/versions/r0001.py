"""The first tables, as they were then: a later revision changes them, and nobody changes this one."""

from typing import Any

import sqlalchemy as sa
from alembic import op

revision, down_revision = "0001", None

Columns = dict[str, Any]

TEXT, WHOLE, NUMBER = sa.Text(), sa.BigInteger(), sa.Double[Any]()
TIME, TRUTH = sa.DateTime(timezone=True), sa.Boolean()
TABLES: dict[str, tuple[Columns, Columns]] = {
    "runs": (
        {"device": TEXT, "op": TEXT, "run": TEXT},
        {"position": WHOLE, "accepted": TRUTH, "created": TIME, "revision": TEXT, "branch": TEXT, "board": TEXT}
        | {"timer": TEXT, "digest": TEXT, "line": TEXT},
    ),
    "cases": (
        {"device": TEXT, "op": TEXT, "case_id": TEXT, "suite": TEXT, "run": TEXT},
        {"kernel_us": NUMBER, "reference_us": NUMBER, "speedup": NUMBER, "p99_abs": NUMBER, "figures": TEXT},
    ),
    "verdicts": (
        {"device": TEXT, "op": TEXT, "case_id": TEXT, "suite": TEXT, "target": TEXT, "run": TEXT},
        {"verdict": TEXT, "gate": TEXT, "reason": TEXT, "said": TEXT, "change": NUMBER},
    ),
    "blocks": (
        {"device": TEXT, "op": TEXT, "case_id": TEXT, "run": TEXT, "process": WHOLE, "block": WHOLE, "arm": TEXT},
        {"board": TEXT, "throttle": TEXT, "started_s": NUMBER, "launches": NUMBER, "median_us": NUMBER}
        | {"p25_us": NUMBER, "p75_us": NUMBER, "p95_us": NUMBER, "rsd": NUMBER, "sm_clock_mhz": NUMBER}
        | {"power_w": NUMBER, "temperature_c": NUMBER},
    ),
}


def upgrade() -> None:
    """Makes the tables."""
    for table, (keys, others) in TABLES.items():
        columns: list[sa.Column[Any]] = [
            sa.Column(name, kind, nullable=name not in keys) for name, kind in (keys | others).items()
        ]
        op.create_table(table, *columns, sa.PrimaryKeyConstraint(*keys))
