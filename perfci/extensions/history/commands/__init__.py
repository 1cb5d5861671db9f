"""The commands of this extension (history, bisect, thresholds, site): with perfci/cli the only modules that print."""
