"""Speed: blocks of interleaved launches, spread over time and over an op's cases.

A block is one observation: fresh buffers, a short warm-up, then rounds in which every arm is launched once in random
order behind a cache flush. How many rounds a block has follows from the length of the kernel. How many blocks a case
gets follows from the width of its interval and the budget, never from which arm looks faster; a duel with the base
revision follows the rule in `perfci.statistics.duel_rule`.

bench      what is measured, on what, how
prepare    first calls: compile, verify, capture, warm up
base       the base revision as an opponent
peers      further implementations beside the kernel
blocks     blocks and sessions
turns      blocks taken in turns with another process
suspect    what looks like cheating
"""
