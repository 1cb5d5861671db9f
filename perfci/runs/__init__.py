"""The whole flow: plan, record, decide, merge, accept, doctor; finds the base and gets what the judge lacks.

`flow` is the story of a check on one screen. A module does one thing that a command asks for, or one step of the flow.
"""
