"""The tune task: a search times its candidates on the device at hand, or estimates them for one that is not here."""
