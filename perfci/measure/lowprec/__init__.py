"""Storage in low precision: declared by an op, recorded in a run, compared with limits. See docs/low-precision.md."""
