"""The commands' options and their words for --help, by job; what each does stands in the module that it imports.

checking     check, run, static, chain, soak
sharding     plan, merge
duelling     again, creep, bisect
reporting    compare, report, show, export, note, site
baselines    accept, rebaseline, propose
past         history, drift, boards
thresholds   thresholds show, tighten, relax
tuning       tune
projects     init, new, list, demo
machine      doctor, selftest
"""
