"""Faults that a single right call does not show: leaks, decay, answers that change, streams, threads, huge shapes."""
