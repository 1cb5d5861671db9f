"""The statistics behind the verdicts: functions of numbers and histories, pure.

exact         tests, intervals and summaries
duel_rule     when a duel of head and base has shown enough
many_duels    the same rule for many duels at once, for simulation
changepoints  steps in a history
boards        what boards of a model differ by, and those that stand out
bisection     the search for the commit that changed a kernel
"""
