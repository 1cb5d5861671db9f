"""Charts by matplotlib: each function takes plain data and returns a Figure, which is saved as a PNG."""
