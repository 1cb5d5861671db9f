"""Checks on the boards of a Ray cluster (`--on`).

cluster     nodes that measure shards
check       a shard an op
node        what a node does
"""

from perfci.core.extensions import Extension

HERE = "perfci.extensions.ray"

EXTENSION = Extension(provides={"cluster": (f"{HERE}.check:check_on_cluster",)})
