"""The whole flow: plan, record, decide, merge, accept and doctor, with the base found and what the judge lacks.

`flow` is the story of a check on one screen. A module does one thing that a command asks for, or one step of the flow.
"""
