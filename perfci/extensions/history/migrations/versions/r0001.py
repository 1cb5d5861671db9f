"""The first tables. A later revision changes them, and no one changes this one. A run is one op's, on a device."""

from alembic import op

revision, down_revision = "0001", None

TABLES = """
CREATE TABLE runs (device TEXT, op TEXT, run TEXT, position BIGINT NOT NULL, accepted BOOLEAN NOT NULL,
    created TIMESTAMPTZ, revision TEXT, branch TEXT, board TEXT, timer TEXT, digest TEXT, line TEXT,
    PRIMARY KEY (device, op, run));
CREATE TABLE cases (device TEXT, op TEXT, case_id TEXT, suite TEXT, run TEXT, kernel_us DOUBLE PRECISION,
    reference_us DOUBLE PRECISION, speedup DOUBLE PRECISION, p99_abs DOUBLE PRECISION, figures TEXT,
    PRIMARY KEY (device, op, case_id, suite, run));
CREATE TABLE verdicts (device TEXT, op TEXT, case_id TEXT, suite TEXT, target TEXT, run TEXT, verdict TEXT, gate TEXT,
    reason TEXT, said TEXT, change DOUBLE PRECISION, PRIMARY KEY (device, op, case_id, suite, target, run));
CREATE TABLE blocks (device TEXT, op TEXT, case_id TEXT, run TEXT, process BIGINT, block BIGINT, arm TEXT, board TEXT,
    throttle TEXT, started_s DOUBLE PRECISION, launches BIGINT, median_us DOUBLE PRECISION, p25_us DOUBLE PRECISION,
    p75_us DOUBLE PRECISION, p95_us DOUBLE PRECISION, rsd DOUBLE PRECISION, sm_clock_mhz BIGINT,
    power_w DOUBLE PRECISION, temperature_c BIGINT, PRIMARY KEY (device, op, case_id, run, process, block, arm));
CREATE INDEX verdicts_run ON verdicts (run)
"""


def upgrade() -> None:
    """Makes the tables: in PostgreSQL and in DuckDB by the same words."""
    for statement in TABLES.split(";"):
        op.execute(statement)
