"""What the gate and other extensions ask of shards."""

from perfci.extensions.shards.command import check_planned
from perfci.extensions.shards.joined import check_on_devices, merge_shards, run_shards
from perfci.extensions.shards.part import FOLDER
from perfci.extensions.shards.plans import plan_shards, refuse_foreign_plan


class Shards:
    """Checks that runners or devices share."""

    folder = FOLDER
    plan = staticmethod(plan_shards)
    refuse_foreign_plan = staticmethod(refuse_foreign_plan)
    check_planned = staticmethod(check_planned)
    check_on_devices = staticmethod(check_on_devices)
    run = staticmethod(run_shards)
    merge = staticmethod(merge_shards)
