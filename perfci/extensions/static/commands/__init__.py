"""The commands of this extension (static): with perfci/cli the only modules that print."""
