"""A Ray cluster in a process of its own: a head and a node with one board each. A line on its input kills the node.

It prints the address for drivers and the port for clients as one line of JSON. All of it goes when its input ends, so
that nothing of Ray's is left in the process of the tests.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
from types import SimpleNamespace

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


def stand_in(begin, wait, get):
    """Returns what perfci uses of the module ray. `begin` gets a node and the arguments of a task."""

    def options(scheduling_strategy):
        return SimpleNamespace(remote=lambda *arguments: begin(scheduling_strategy, arguments))

    pins = SimpleNamespace(NodeAffinitySchedulingStrategy=lambda node, soft: node)
    ray = SimpleNamespace(put=bytes, remote=lambda **_: lambda _: SimpleNamespace(options=options), wait=wait, get=get)
    ray.util, ray.exceptions = SimpleNamespace(scheduling_strategies=pins), SimpleNamespace(RayError=KeyError)
    return ray


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
        head = {**board, "ray_client_server_port": port, "temp_dir": folder, "env_vars": {"WHICH": "head"}}
        cluster = Cluster(initialize_head=True, head_node_args=head, shutdown_at_exit=False)
        try:
            node = cluster.add_node(wait=False, **board, env_vars={"WHICH": "node"})
            cluster.wait_for_nodes(WAIT_S)
            print(json.dumps([cluster.address, port]), flush=True)
            for _ in sys.stdin:
                cluster.remove_node(node, allow_graceful=False)
        finally:
            cluster.shutdown()


if __name__ == "__main__":
    serve()
