"""The commands of this extension (tune, soak and chain): with perfci/cli the only modules that print."""
