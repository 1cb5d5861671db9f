"""A Ray cluster in a separate process: a head with one board and a node with one, or as many as it is called with.

A line on its input kills the node.

It prints the address for drivers and the port for clients as one line of JSON. All of it goes when its input ends, so
that nothing of Ray's is left in the process of the tests.
"""

import contextlib
import json
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

WAIT_S = 600  # nothing is given up on a loaded machine

# A killed node refuses connections, and is missed within a second. A slow one is never taken for dead.
LIMITS = {
    "RAY_health_check_initial_delay_ms": 500,
    "RAY_health_check_period_ms": 500,
    "RAY_health_check_failure_threshold": 2,
    "RAY_health_check_timeout_ms": WAIT_S * 1000,
    "RAY_worker_register_timeout_seconds": WAIT_S,
    "RAY_raylet_start_wait_time_s": WAIT_S,
    "RAY_worker_niceness": 0,  # as the docs advise
    "GRPC_ENABLE_FORK_SUPPORT": 0,
    "RAY_enable_metrics_collection": 0,
    "RAY_USAGE_STATS_ENABLED": 0,
}


class StandIn:
    """What perfci uses of the module ray: nodes with boards, with tasks that are done when they are waited for.

    around: context in which a node, by its name, does a task. takes: what tasks with boards asked for.
    """

    def __init__(self, nodes="a", around=lambda node: contextlib.nullcontext(), boards=1):
        self._nodes, self._around, self._boards, self.takes = nodes, around, boards, []
        pins = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
        self.util, self.exceptions = SimpleNamespace(scheduling_strategies=pins), SimpleNamespace(RayError=LostError)

    def nodes(self):
        places = ("NodeID", "NodeManagerHostname", "NodeManagerAddress")
        return [
            {**dict.fromkeys(places, node), "Alive": True, "Resources": {"CPU": float(self._boards)}}
            for node in self._nodes
        ]

    def cluster_resources(self):
        return {}

    def put(self, files):
        return files

    def remote(self, max_retries, **takes):
        self.takes += [takes] * any(takes.values())

        def make(function):
            def options(scheduling_strategy):
                def begin(*arguments):
                    return Task(scheduling_strategy, function, arguments)

                return SimpleNamespace(remote=begin)

            return SimpleNamespace(options=options)

        return make

    def wait(self, begun, timeout):
        return begun[:1], begun[1:]

    def get(self, task, timeout=None):
        with self._around(task.node):
            return task.function(*task.arguments)


class LostError(Exception):
    """A node is lost with its task."""


@dataclass(frozen=True, eq=False)
class Task:
    """A task of a node."""

    node: str
    function: Callable[..., Any]
    arguments: Sequence[Any]


def serve() -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    os.environ.update({name: str(value) for name, value in LIMITS.items()})
    from ray.cluster_utils import Cluster

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    board = {"num_cpus": 1, "include_dashboard": False, "include_log_monitor": False, "no_monitor": True}
    with tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as folder:  # short: sockets lie there
        # WHICH tells a kernel where it is.
        os.environ["RAY_TMPDIR"] = folder  # else the address is written to /tmp/ray, which no one makes
        home = f"{folder}/ray"
        head = {**board, "ray_client_server_port": port, "temp_dir": home, "env_vars": {"WHICH": "head"}}
        cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
        try:
            more = {**board, "num_cpus": int([*sys.argv, "1"][1])}
            node = cluster.add_node(wait=False, **more, env_vars={"WHICH": "node"})
            cluster.wait_for_nodes(WAIT_S)
            print(json.dumps([cluster.address, port]), flush=True)
            for _ in sys.stdin:
                cluster.remove_node(node, allow_graceful=False)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    serve()
