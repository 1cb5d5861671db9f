"""Searching for an op's configurations: what may be tried, what comes next, what wins. Measures nothing itself."""
