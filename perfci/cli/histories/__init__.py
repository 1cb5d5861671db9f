"""Accepted runs of ops: what there is (kept), for people (tables), for programs (data), drawn (plot)."""
