"""Speed: blocks of interleaved launches, spread over time and over an op's cases.

A block is one observation: fresh buffers, a short warm-up, then rounds in which every arm is launched once in random
order behind a cache flush. How many rounds a block has follows from the length of the kernel. How many blocks a case
gets follows from the width of its interval and the budget, never from which arm looks faster. A duel with the base
revision follows the rule in `perfci.statistics.duel_rule`.

bench      what is measured, on what and how
prepare    first calls of kernel, base and peers: compile, verify, capture, warm up
blocks     blocks and sessions
suspect    what looks like cheating
verify     the accuracy suite
"""
