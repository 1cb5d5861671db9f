"""Common to everything: records, settings, the environment, errors, words. Imports nothing else of perfci.

model         the frozen records that flow from measuring to reports
wording       the sentence of each reason, in each language
settings      `[tool.perfci]`, and the folders of a project
environment   what may move a number without the kernel changing, and what workers inherit
stopping      signals that end perfci, from its first moment to its last
deadline      the time that a job has, shared out over its ops
renames       cases and ops that had other names before
codec         records to JSON and back
"""

from pathlib import Path

VERSION = "0.1.0"

PACKAGE = Path(__file__).parents[1]
"""Folder of perfci's files. Modules take it from here, as `perfci` itself is the face of what stands above them."""
