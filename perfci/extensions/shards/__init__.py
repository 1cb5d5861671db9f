"""A check that several runners, or several devices of a host, share: a shard each, joined to one run.

plans      the plan: what is measured, by which shard
part       one shard measured, or looked at again on another board, and the runs of all as one
joined     shards measured at once on this host, merged and judged
commands   `perfci ci plan` and `perfci ci merge`
kind       what the gate and other extensions ask for, and `perfci check --plan`
"""

from perfci.core.extensions import Extension

EXTENSION = Extension(
    provides={
        "shards": ("perfci.extensions.shards.kind:Shards",),
        "ci": ("perfci.extensions.shards.commands.ci:add_commands",),
    }
)
