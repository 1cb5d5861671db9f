"""The commands of this extension (tune and soak): with perfci/cli the only modules that print."""
