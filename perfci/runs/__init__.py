"""The whole flow, which is the story of a check on one screen (`flow`), and its steps, a module each."""
