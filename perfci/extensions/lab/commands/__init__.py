"""The commands of this extension: with perfci/cli the only modules that print."""
