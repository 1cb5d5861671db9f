"""Performs the tune task."""

from perfci.core.errors import DeviceError
from perfci.device.seam import Accelerator
from perfci.extensions.lab.tune.task import Tune
from perfci.worker.load import LoadedOp
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import Doing, MessageChannel


def run(task: Tune, channel: MessageChannel) -> None:
    """Search an op's configurations: on the device, or by the model for one that is not here."""
    if task.spec is not None:
        from perfci.extensions.lab.tune.modelled import run_modelled

        channel.send(Doing("import", task.op))
        run_modelled(task, channel.send)
        return

    def load(device: Accelerator) -> LoadedOp:
        if device.absent:
            raise DeviceError("tune_not_timed", op=task.op)
        return load_files(task, task.place.ops[0])

    with open_op(task, channel, load) as (device, loaded):
        from perfci.extensions.lab.tune.measured import run_measured

        run_measured(task, channel.send, device, loaded)
