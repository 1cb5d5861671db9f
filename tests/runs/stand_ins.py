"""Workers that are functions, and a project with files that they never read."""

import dataclasses

from perfci.core.model.basics import Reason
from perfci.core.model.measured import AccuracyCase, ArmBlock, BaseArm, Block, Measured, PerformanceCase, Summary
from perfci.core.model.place import Device, Limits
from perfci.core.model.run import PlannedOp
from perfci.worker.protocol import Apart, Doing, Finished, OpDone, Prepared, Ready, Timing
from perfci.worker.tasks import Describe, Measure

DEVICE = Device("fake", "Fake One", "fake-one", "FAKE-0")
CASES = ("rows=1", "rows=2")
OPS = ("relu", "scale")


def block(index, process=0, base=False):
    arm = ArmBlock(Summary(1, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 5.0, 0.0, 0))
    arms = {"kernel": arm, "reference": arm} | ({"base": arm} if base else {})
    return Block(index, process, 0.5, arms, {f"kernel/{other}": 0.0 for other in arms if other != "kernel"})


class Workers:
    """Replaces `run_worker`, `working` and `working_in_turns`: answers each task as the test planted it."""

    def __init__(self):
        self.tasks = []
        self.under_way = self.most_at_once = 0  # of those that others may run beside
        self.surroundings = []
        self.pairs = []
        """sides and rules of each pair"""
        self.dies = {}
        """(task, op) -> what ends the worker when it reaches the op: a reason, or an exception"""
        self.apart = {}
        """op -> why its revisions need a process each"""
        self.planned = {}
        self.devices = 1
        self.boards = {}
        """process, or what a worker is given to see -> UUID"""
        self.models = {}
        """UUID -> device, where it is another model"""
        self.device_answers = True
        self.visible = 1
        self.late = {}
        """(op, process) -> cases that its worker had no time for"""
        self.passes = lambda task: None
        """called when a measuring worker ends: time may pass"""

    def __call__(self, task, around, heard):
        self.tasks.append(task)
        self.surroundings.append(around)
        return self._describe(task, around, heard) if isinstance(task, Describe) else self._measure(task, around, heard)

    def working(self, task, around, heard):
        """In the place of the generator."""
        self.under_way += 1
        self.most_at_once = max(self.most_at_once, self.under_way)
        yield ()
        self.under_way -= 1
        return self(task, around, heard)

    def working_in_turns(self, head, base, plan, heard):
        yield ()
        self.pairs.append((head, base, plan))
        return self._measured(head.task, head.around, heard, base=True)

    def _describe(self, task, around, heard):
        if not self.device_answers:
            return Reason("cuda_unavailable", {"torch": "2.13"})
        uuid = self.boards.get(around.environment.get("FAKE_VISIBLE_DEVICES"), DEVICE.uuid)
        device = self.models.get(uuid, dataclasses.replace(DEVICE, uuid=uuid))
        heard(Ready(device, devices=self.devices, visible=self.visible))
        for files in task.place.ops:
            heard(Doing("import", files.op))
            if (death := self.dies.get(("describe", files.op))) is not None:
                return death
            heard(self.planned.get(files.op, PlannedOp(files.op, ("rows=0",), CASES)))
        return None

    def _measure(self, task, around, heard):
        op = task.op
        heard(Doing("import", op))
        if op in self.apart:
            heard(Apart(self.apart[op]))
            return None
        return self._measured(task, around, heard, base=task.base is not None)

    def _measured(self, task, around, heard, base):
        op = task.op
        by_process = self.boards.get(task.process, DEVICE.uuid)
        uuid = self.boards.get(around.environment.get("FAKE_VISIBLE_DEVICES"), by_process)
        timer = task.opening.timer
        heard(Ready(Device("fake", "Fake One", "fake-one", uuid)))
        heard(Timing("virtual" if timer in {"auto", "event"} else timer))
        if not task.process and task.suites[0] == "accuracy":
            heard(AccuracyCase("rows=0", "normal", "contiguous", 0))
        cases = task.cases if task.cases is not None else CASES
        arm = BaseArm(same=False, duelled=True) if base else None
        for case in cases:
            heard(Doing("measure", op, case))
            heard(Prepared(PerformanceCase(case, compile_s=1.0 + task.process, base=arm)))
            heard(Measured(case, block(0, task.process, base), {"kernel": (5.0,), "reference": (5.0,)}))
        self.passes(task)
        death = self.dies.get(("judge" if task.host else "measure", op))
        if isinstance(death, BaseException):
            raise death
        if death is not None:
            return self.dies.pop(("measure", op)) if ("judge", op) in self.dies and not task.host else death
        short = self.late.get((op, task.process), ())
        for case in cases:
            heard(Finished(PerformanceCase(case, compile_s=1.0 + task.process, base=arm), case in short))
        heard(OpDone(verify_s=1.0, measure_s=2.0, limits=Limits(1000.0, {op: 1.0}), late=bool(short)))
        return None

    def measured(self):
        """(op, process, cases) of every measuring task."""
        return [(task.op, task.process, task.cases) for task in self.tasks if isinstance(task, Measure)]


FILES = {
    "triton": "def {op}(x):\n    return x\n",
    "baseline": "def {op}(x):\n    return x\n\n\ndef make_inputs(rows, device, seed):\n    return {{}}\n",
    "accuracy": "import perfci\n\naccuracy = perfci.Accuracy()\n",
    "performance": "import perfci\n\nperformance = perfci.Performance()\n",
}


def write_ops(root, ops=OPS):
    """A kernels folder with the four files of each op."""
    for op in ops:
        folder = root / "kernels" / op
        folder.mkdir(parents=True, exist_ok=True)
        for part, text in FILES.items():
            (folder / f"{op}_{part}.py").write_text(text.format(op=op))
