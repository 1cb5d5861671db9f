"""The tune task.

seam        gives the op the entries that a search wants it to have, and sees which one a call takes
search      an op's search, whatever times its candidates
measured    candidates timed on the device at hand
modelled    candidates compiled, their times estimated, for a device that is not here
"""
