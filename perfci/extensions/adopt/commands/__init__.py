"""The commands of this extension (perfci new): with perfci/cli the only modules that print."""
