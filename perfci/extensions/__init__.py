"""Products that hang on the gate: `perfci.core.extensions` says how. Nothing of the gate imports from here."""
