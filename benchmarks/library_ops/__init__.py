"""Ops of other people's libraries, as a stranger would write suites for them: nothing of the libraries is here."""
