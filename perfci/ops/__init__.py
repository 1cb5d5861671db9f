"""Ops: their suites, their folders, and whether two revisions of one do the same work."""
