"""What the gate and other extensions ask of clusters."""

from perfci.extensions.ray.check import check_on_cluster
from perfci.extensions.ray.cluster import open_cluster


class RayKind:
    """Clusters of Ray."""

    check = staticmethod(check_on_cluster)
    open = staticmethod(open_cluster)
