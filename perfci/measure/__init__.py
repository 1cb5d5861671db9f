"""Speed: blocks of interleaved launches, spread over time and over an op's cases.

A block is one observation: fresh buffers, a warm-up, then rounds in which every arm is launched once, in random order,
behind a cache flush. A case's blocks follow from the width of its interval and the budget, or from the rule of duels.
"""
