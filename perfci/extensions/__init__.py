"""Products that hang on the gate: see `perfci.core.extensions`. Nothing of the gate imports from here.

The folder common is no product: it holds what several of them use and the gate does not.
"""
