"""Ops: their suites, their folders, and whether two revisions of one do the same work.

spec         what a suite file declares
discover     the ops of a project
fingerprint  the files that an op consists of
identity     two calls compared: the same work on the device, or what changed
"""
