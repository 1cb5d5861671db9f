"""The commands of this extension (doctor): with perfci/cli the only modules that print."""
