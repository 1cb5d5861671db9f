import os

# Triton's interpreter is switched on for a whole process, before Triton is first imported: test_interpreted.py runs
# these in a process of their own.
collect_ignore = [] if os.environ.get("TRITON_INTERPRET") == "1" else ["interpreted"]
