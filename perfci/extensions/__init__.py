"""Products that hang on the gate: see `perfci.core.extensions`. Nothing of the gate imports from here."""
