"""Tier 0 of identity: all files that an op's code can come from, by content. Nothing is imported, compiled or run.

What the syntax does not show makes a fingerprint opaque, and an opaque one is the same as none.
"""
