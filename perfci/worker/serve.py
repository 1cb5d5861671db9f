"""Runs one op's code for another process, which judges it: makes the calls that it is asked for, and no other."""

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from perfci.core.codec import decode
from perfci.core.model import Reason, Suite
from perfci.device.arrays import Arrays, Damage, Memory
from perfci.device.seam import Accelerator, LateError, NotInterpretedError, find_cause
from perfci.worker.handover import (
    DONE,
    GO,
    LOST,
    READY,
    RETURNED,
    VIRTUAL,
    Arena,
    Called,
    KernelCall,
    Lender,
    Lent,
    borrow,
    rest,
)
from perfci.worker.load import LoadedOp, describe_exception
from perfci.worker.opening import load_files, open_op
from perfci.worker.protocol import MessageChannel
from perfci.worker.tasks import Serve


def serve(task: Serve, channel: MessageChannel) -> None:
    """Answer calls until the other process ends this one."""

    def load(device: Accelerator) -> LoadedOp:
        device.hear_driver()  # before the op's files load their kernels
        return load_files(task, task.place.ops[0])

    with open_op(task, channel, load) as (device, loaded):
        server = _Server(Arena(task.arena), device, loaded, task.folder, channel)
        answer = Called(compile_s=loaded.import_s)
        while True:
            answer = server.answer(decode(channel.ask(answer), KernelCall))


class _Server:
    def __init__(
        self, arena: Arena, device: Accelerator, loaded: LoadedOp, folder: Path, channel: MessageChannel
    ) -> None:
        self._arena, self._device, self._loaded, self._folder = arena, device, loaded, folder
        self._channel = channel
        self._held: dict[str, Any] = {}  # inputs of turns
        self._cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else {0}
        self._kept: Any = None  # the last answer's outputs: memory that is used again while they live shows
        self._numbers: dict[int, int] = {}  # key of a memory of the last answer -> its number
        self._next = 0

    def answer(self, call: KernelCall) -> Called:
        """Make one call."""
        arrays, suite = self._device.arrays, call.suite
        kernel = (self._loaded.accuracy if suite == Suite.ACCURACY else self._loaded.performance).kernel
        if not call.wrapped and self._loaded.function:
            kernel = self._loaded.function
        given: dict[int, Any] = {}

        def find(number: int) -> Any:
            if number not in given:
                memory = _open(call.memory[number], arrays, self._arena)
                # In turns separate memory, as in a user's process.
                given[number] = memory.clone() if call.calls is not None and call.memory[number].handle else memory
            return given[number]

        inputs = {name: borrow(value, arrays, find) for name, value in call.inputs.items()}
        if inputs or call.calls is None:
            self._held = inputs if call.calls is not None else {}
        if hasattr(os, "sched_setaffinity") and self._device.timer != VIRTUAL:
            # Kernel and base take turns on one core: cores of a shared host differ by more than wrappers do.
            os.sched_setaffinity(0, self._cores if call.calls is None else {max(self._cores)})
        try:
            if call.calls is not None:
                self._device.hear_no_more()
                return Called(turn_s=self._take_turn(kernel, call.calls, mark=not inputs))
            if call.record and (recorded := self._record(kernel, inputs)):
                return recorded
            return self._call(call, kernel, inputs, given)
        except Exception as error:
            kinds = tuple(kind.__name__ for kind in type(error).__mro__[:-2])
            lost = (LOST,) if self._device.is_lost(error) else ()
            behind = find_cause(error, LateError) or find_cause(error, NotInterpretedError)
            kinds += (type(behind).__name__,) if behind else ()
            return Called(error=describe_exception(error, self._folder), kinds=kinds + lost)

    def _take_turn(self, kernel: Any, calls: int, *, mark: bool) -> tuple[float, float]:
        """Make a turn's calls, then those that count at the other process's mark: the first after a stop are slow."""

        def call() -> Any:
            return kernel(**self._held)

        turn_s, marks = self._device.turn_s(call, calls), self._arena.marks
        if mark:
            marks[READY] = 1
            while not marks[GO]:
                rest(self._device.timer)
            turn_s = self._device.turn_s(call, calls, lambda: marks.__setitem__(RETURNED, 1))
            marks[DONE] = 1
        return turn_s

    def _record(self, kernel: Any, inputs: dict[str, Any]) -> Called | None:
        """The call as a recording. None on a device that never has any."""
        device = self._device
        with device.record_kernels() as kernels:
            began = time.perf_counter()
            output = kernel(**inputs)
            device.synchronize()
            seconds = time.perf_counter() - began
        del output
        recording = device.record(kernel, inputs)
        if recording is None:
            return None
        device.synchronize()
        used = device.arrays.memory_in_use()
        compiled = tuple(compiled_kernel for _, compiled_kernel in sorted((kernels or {}).items()))
        if isinstance(recording, Reason):
            return Called(refusal=recording, compile_s=seconds, compiled=compiled, in_use=used)
        return Called(recording=recording, compile_s=seconds, compiled=compiled, in_use=used)

    def _call(self, call: KernelCall, kernel: Any, inputs: dict[str, Any], given: dict[int, Any]) -> Called:
        device, arrays = self._device, self._device.arrays
        with ExitStack() as stack:
            watch = stack.enter_context(arrays.watch_allocations(call.filler)) if call.filler else None
            races = stack.enter_context(device.watch_races()) if call.races else ()
            stack.enter_context(device.bound_calls(call.most_s)) if call.most_s else None
            capture = stack.enter_context(device.capture_work())
            kernels = stack.enter_context(device.record_kernels())
            output = kernel(**inputs)
            device.synchronize()
        lender = Lender(arrays, self._arena, call.free)
        for number, memory in given.items():  # an output may lie in an input's memory
            lender.known[arrays.memory_of(memory).key] = number
        lender.lent, first = list(call.memory), len(call.memory)
        spelled = lender.spell(output)
        numbers = {}
        for key, number in lender.known.items():
            if number >= first:
                numbers[key] = self._numbers.get(key, self._next)
                self._next += numbers[key] == self._next
        self._kept, self._numbers = output, numbers
        return Called(
            output=spelled,
            memory=tuple(lender.lent[first:]),
            again=tuple(numbers.values()),
            damage=watch.find_damage() if watch else Damage(),
            races=tuple((race.kind, race.addresses, race.programs, race.facts) for race in races),
            spent_us=tuple(device.spent_us(capture)),
            in_use=arrays.memory_in_use(),
            launched=tuple(kernels or ()),
        )


def _open(lent: Lent, arrays: Arrays, arena: Arena) -> Any:
    """An array over a memory that was lent."""
    if lent.handle:
        return arrays.open_foreign(lent.handle)
    return arrays.view(arena.part(lent.place, lent.size), Memory(0, lent.size, "uint8", (lent.size,), (1,), 0))
