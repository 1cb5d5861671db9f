"""The commands of this extension (ci plan and ci merge): with perfci/cli the only modules that print."""
