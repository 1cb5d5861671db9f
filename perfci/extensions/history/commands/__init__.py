"""The commands of this extension (history, bisect, thresholds and the site): with perfci/cli the only modules that print."""
