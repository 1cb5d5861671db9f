"""The command of this extension (ci note): with perfci/cli the only module that prints."""
