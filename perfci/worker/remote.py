"""The judge's side of an op that runs in a separate process: its kernel is called there, or repeated here.

The op's process gets the inputs of one call at a time, and gives outputs back, which are copied before an answer is
computed. On a GPU it gives a recording of the call, which this process repeats without it.
"""

import functools
import select
import tempfile
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, cast

from perfci.core.model import CompiledKernel, Fact, Reason, Suite, as_fact
from perfci.device.arrays import AllocationWatch, Arrays, Damage, Inputs
from perfci.device.seam import Accelerator, LateError, Layer, NotInterpretedError, Race
from perfci.measure.bench import MakeCalls
from perfci.ops.backends import backend_of, find_kernel
from perfci.ops.recording import DRIVER, Recording, UnspelledError
from perfci.worker.handover import (
    DONE,
    GO,
    LOST,
    READY,
    RETURNED,
    VIRTUAL,
    Arena,
    Called,
    HostLostError,
    KernelCall,
    Lender,
    Lent,
    UnsharedError,
    borrow,
    rest,
)
from perfci.worker.load import LoadedOp
from perfci.worker.process import Running, give_handle, start_worker, wait
from perfci.worker.tasks import Host


class _Watch:
    """Damage of guard zones, here and in the op's process."""

    def __init__(self, here: AllocationWatch) -> None:
        self._here, self.damage = here, Damage()

    def find_damage(self) -> Damage:
        return self.damage.join(self._here.find_damage())


class RemoteArrays(Layer[Arrays]):
    """The device's arrays. Memory is watched in both processes."""

    def __init__(self, below: Arrays) -> None:
        super().__init__(below)
        self.watch: _Watch | None = None
        self.filler: str | None = None  # what the op's process is to fill fresh memory with
        self.in_use: int | None = None  # bytes that it holds on the device
        self.counts_there = False  # memory in use is that of the op's process

    def memory_in_use(self) -> int | None:
        """Bytes that one of the two processes holds."""
        return self.in_use if self.counts_there else self.below.memory_in_use()

    @contextmanager
    def watch_allocations(self, filler: str) -> Iterator[_Watch]:
        """Watch memory here and there."""
        with self.below.watch_allocations(filler) as here:
            self.watch, self.filler = _Watch(here), filler
            try:
                yield self.watch
            finally:
                self.watch = self.filler = None


class RemoteDevice(Layer[Accelerator]):
    """The device. Of calls that are made in the op's process, it shows their answers."""

    def __init__(self, below: Accelerator) -> None:
        super().__init__(below)
        self.arrays = RemoteArrays(below.arrays)
        self.races: list[Race] | None = None  # that were seen, if they are watched for
        self.most_s: float | None = None  # that a call may take
        self._launched: dict[str, CompiledKernel] = {}

    @property
    def seam(self) -> Accelerator:
        """Itself, by its type."""
        return cast(Accelerator, self)

    def see(self, answer: Called) -> None:
        """Take over what was seen of a call there."""
        if self.arrays.watch:
            self.arrays.watch.damage = self.arrays.watch.damage.join(answer.damage)
        if self.races is not None:
            self.races += [Race(*race) for race in answer.races]
        self._launched |= {name: CompiledKernel(name) for name in answer.launched}
        self.below.spend(answer.spent_us)
        self.below.note_launches(answer.launched)

    @contextmanager
    def record_kernels(self) -> Iterator[Mapping[str, CompiledKernel] | None]:
        """Collect launches of calls that are made there, and of those that are repeated here."""
        with self.below.record_kernels() as here:
            self._launched = {}
            yield None if here is None else ChainMap(self._launched, cast(dict[str, CompiledKernel], here))

    @contextmanager
    def watch_races(self) -> Iterator[list[Race]]:
        """Collect races here and there."""
        with self.below.watch_races() as here:
            self.races = []
            try:
                yield self.races
            finally:
                self.races.extend(here)
                self.races = None

    @contextmanager
    def bound_calls(self, seconds: float) -> Iterator[None]:
        """Bound each call there, and all here."""
        around, self.most_s = self.most_s, seconds
        try:
            with self.below.bound_calls(seconds):
                yield
        finally:
            self.most_s = around

    def out_of_memory(self, error: BaseException) -> bool:
        """Also for an exception of the op's process, which has the names of its classes."""
        return "OutOfMemoryError" in getattr(error, "kinds", ()) or self.below.out_of_memory(error)

    def is_lost(self, error: BaseException) -> bool:
        """Also for the op's process, which says so of its exception."""
        return LOST in getattr(error, "kinds", ()) or self.below.is_lost(error)


_KINDS = {
    kind.__name__: kind
    for kind in (LateError, NotInterpretedError, TypeError, ValueError, NotImplementedError, MemoryError)
}

_UNSOUND = (ArithmeticError, AttributeError, LookupError, MemoryError, TypeError, ValueError)

LINGER_S = 0.1  # in which an op that ends its process after its last check does so

_GLANCES = 1 << 14  # at a mark, a few milliseconds, between two looks at how the process is


class RemoteOp:
    """An op in a separate process, and how its calls are made."""

    def __init__(
        self, process: Running, device: Accelerator, arena: Arena, folder: Path, source: Path, alive: Callable[[], None]
    ) -> None:
        """`folder`: of recorded binaries. source: the kernel's file. alive: called while the process works."""
        self._source = source
        self._process, self._device, self._arena, self.folder, self._alive = process, device, arena, folder, alive
        self._layer = RemoteDevice(device)
        self._programs: dict[tuple[str, str], Callable[..., Any] | Reason] = {}
        self._outputs: dict[int, Any] = {}  # memory of the last answer's outputs by number
        self.recorded: Called | None = None  # the last answer with a recording
        self.heard = False  # calls gave the device work that only the driver shows
        self.refused: Reason | None = None  # why a call of the performance suite is not repeated
        self._unheard: list[Called] = []
        self._answering = False  # it has sent an answer, at first that it is ready
        self._wrapped = frozenset[str]()  # suites of the judge that wrap the function that users call
        self.living = True  # the process holds the device
        self._stands = False  # it is stopped but for its turns

    @property
    def device(self) -> Accelerator:
        """The device, with what goes on in the process."""
        return self._layer.seam

    def kernel(self, suite: Suite) -> Callable[..., Any]:
        """The kernel of one of its suites, to be called here."""

        def call(**inputs: Any) -> Any:
            return self._run(suite, inputs)

        vars(call)["source_file"] = self._source  # where a search looks for its constants
        return call

    def judge(self, suites: LoadedOp) -> LoadedOp:
        """Returns the judge's suites with this op's kernel."""
        self._wrapped = frozenset(suites.wrappers)
        accuracy, performance = (self.kernel(suite) for suite in (Suite.ACCURACY, Suite.PERFORMANCE))
        backend = backend_of(self._source)
        return replace(
            suites,
            accuracy=replace(suites.accuracy, kernel=accuracy, backend=backend),
            performance=replace(suites.performance, kernel=performance, backend=backend),
            function=None,  # the base's, which are not judged
        )

    def can_repeat(self, inputs: Inputs) -> bool:
        """Whether a timed call on such inputs needs no more of the process."""
        return callable(self._programs.get((Suite.PERFORMANCE, self._device.key_of(inputs))))

    @contextmanager
    def calls_there(self) -> Iterator[None]:
        """Inside, no call is repeated here, and memory in use is that of the op's process."""
        arrays = self._layer.arrays
        arrays.counts_there = True
        try:
            yield
        finally:
            arrays.counts_there = False

    def kill(self) -> None:
        """Kill the process without waiting for it, if nothing more will be asked of it: calls are repeated here."""
        if self._device.can_replay and not self._process.over:
            self._process.kill()

    def end(self) -> None:
        """End the process, as `kill` does."""
        if self._device.can_replay:
            self._process.end()
            self.living = False

    def linger(self) -> None:
        """See for a moment whether the process ends after its last call. Raises HostLostError if it does."""
        ends = perf_counter() + LINGER_S
        while (left_s := ends - perf_counter()) > 0:
            select.select([self._process], [], [], left_s)
            self._listen()

    def does_more(self, inputs: Inputs) -> bool:
        """Whether a timed call gives the device work that only the driver shows. It is recorded, if none is yet."""
        place = Suite.PERFORMANCE, self._device.key_of(inputs)
        if not self.heard and place not in self._programs:
            with suppress(Exception):  # which a later call will raise
                self._programs[place] = self._record(*place[:1], inputs)
        return self.heard

    def hold(self, inputs: Inputs) -> MakeCalls:
        """Have the process keep the inputs of a call. Returns how it makes turns of such calls."""
        with self._awake():
            lender = self._ask(Suite.PERFORMANCE, inputs, calls=0)[1]
            self._device.arrays.take_back()
        return functools.partial(self._take_turn, lender)

    def _take_turn(self, _lender: Lender, calls: int) -> tuple[float, float]:
        """Time one turn by this process's clock. Nothing but the device without hardware is believed what it claims."""
        self._device.synchronize()
        marks = self._arena.marks
        with self._awake():
            marks[:] = bytes(len(marks))
            wrapped = Suite.PERFORMANCE in self._wrapped
            self._process.answer(KernelCall(Suite.PERFORMANCE, wrapped, {}, (), 0, calls=calls))
            self._await(READY)
            began = perf_counter()
            marks[GO] = 1
            self._await(RETURNED)
            host_s = perf_counter() - began
            self._await(DONE)
            loop_s = perf_counter() - began
            claimed = self._expect().turn_s
        return (self._device.timer == VIRTUAL and claimed) or (host_s, loop_s)

    def _await(self, mark: int) -> None:
        """Wait for a mark without sleeping: waking up takes longer than a call. Raises what the process raised."""
        while not (self._arena.marks[mark] or self._unheard):
            for _ in range(_GLANCES):
                if self._arena.marks[mark]:
                    return
                rest(self._device.timer)
            self._listen()
        if self._unheard and self._unheard[0].error is not None:
            self._expect()

    def _expect(self) -> Called:
        """Wait for the process's next answer. Raises what it raised."""
        answer = self.hear()
        if answer.error is not None:
            raise _raise_as(answer.error, answer.kinds)
        return answer

    @contextmanager
    def _awake(self) -> Iterator[None]:
        if self._process.over:
            raise self._lost()
        self.stand_still(still=False)
        try:
            yield
        finally:
            self.stand_still()

    def stand_still(self, *, still: bool = True) -> None:
        """Stop the process but for its turns, so that it cannot meddle with what is timed meanwhile."""
        if self._device.can_replay:
            self._stands = still
            self._process.stand_still(still=still)

    def _run(self, suite: Suite, inputs: Inputs) -> Any:
        if self._device.can_replay and not self._layer.arrays.counts_there:
            place = suite, self._device.key_of(inputs)
            program = self._programs.get(place) or self._programs.setdefault(place, self._record(suite, inputs))
            if not isinstance(program, Reason):
                return program(**inputs)
            if suite is Suite.PERFORMANCE:
                self.refused = program
                raise RuntimeError(program.kind)
        answer, lender = self._ask(suite, inputs)
        lender.take_back()
        with self._reading("output"):
            return self._receive(answer, lender)

    @contextmanager
    def _reading(self, what: str) -> Iterator[None]:
        """Read an answer, which code of a merge request can write. Raises HostLostError for what no sound one has."""
        try:
            yield
        except _UNSOUND as error:
            reason = self._process.refuse(f"Called with what is no {what}: {error}"[:200])
            raise HostLostError(reason, answering=self._answering) from error

    def _record(self, suite: Suite, inputs: Inputs) -> Callable[..., Any] | Reason:
        """How a call is repeated, or why it cannot be."""
        with self._awake() if self._stands else nullcontext():
            answer = self._ask(suite, inputs, record=True)[0]
        self.recorded = answer
        self._device.arrays.take_back()
        steps = answer.recording.steps if answer.recording else ()
        self.heard |= any(step.operation.startswith(DRIVER) for step in steps)
        if answer.recording is None:
            return answer.refusal or Reason("captured_nothing")
        with self._reading("recording"):
            return self._device.play(answer.recording, self.folder)

    def _ask(
        self, suite: Suite, inputs: Inputs, *, record: bool = False, calls: int | None = None
    ) -> tuple[Called, Lender]:
        # Memory of a GPU would stay open to the other process, so it gets a copy.
        lender = Lender(self._device.arrays, self._arena, copied=True)
        try:
            spelled = {name: lender.spell(value) for name, value in inputs.items()}
        except UnspelledError as error:
            raise UnsharedError(Reason("not_handed_over", {"what": str(error)})) from None
        layer, wrapped = self._layer, suite in self._wrapped
        watched = layer.arrays.filler, layer.races is not None, layer.most_s
        call = KernelCall(suite, wrapped, spelled, tuple(lender.lent), lender.free, *watched, record, calls)
        self._device.synchronize()
        self._process.answer(call)
        answer = self.hear()
        self._layer.arrays.in_use = answer.in_use
        if answer.error is not None:
            lender.take_back()
            raise _raise_as(answer.error, answer.kinds)
        return answer, lender

    def await_ready(self) -> None:
        """Wait until the process has imported its op. Raises HostLostError if it ends before."""
        if not self._answering:
            self.hear()

    def hear(self) -> Called:
        """Wait for the process's next answer. Raises HostLostError if it ends before."""
        while not self._unheard:
            wait([self._process])
            self._listen()
        self._answering = True
        return self._unheard.pop(0)

    def _listen(self) -> None:
        """Take what the process has sent. Raises HostLostError if it has ended without an answer."""
        self._alive()
        self._unheard += [message for message in self._process.hear() if isinstance(message, Called)]
        if self._process.over and not self._unheard:
            raise self._lost()

    def _lost(self) -> HostLostError:
        return HostLostError(self._process.failure or Reason("worker_silent"), answering=self._answering)

    def _receive(self, answer: Called, lender: Lender) -> Any:
        """The outputs, copied, and what was seen of the call."""
        arrays, before = self._device.arrays, self._outputs
        self._outputs = {}
        memory: list[Any] = list(lender.held)
        for number, lent in zip(answer.again, answer.memory, strict=True):
            content = self._copy(lent)
            if number in before and len(before[number]) == len(content):
                before[number][:] = content
                content = before[number]
            self._outputs[number] = content
            memory.append(content)
        self._layer.see(answer)
        return borrow(answer.output, arrays, lambda number: memory[number])

    def _copy(self, lent: Lent) -> Any:
        if lent.handle:
            return self._device.arrays.open_foreign(lent.handle).clone()
        return bytearray(self._arena.part(lent.place, lent.size))


def _raise_as(facts: Mapping[str, Fact], kinds: tuple[str, ...]) -> Exception:
    """An exception of the op's process: of the same built-in kinds, with the facts that describe it there."""
    bases = tuple(kind for name, kind in _KINDS.items() if name in kinds)[:1] or (RuntimeError,)
    error: Exception = type("RemoteError", bases, {"described": facts, "kinds": kinds})(str(facts.get("message", "")))
    return error


@contextmanager
def connect(host: Host, device: Accelerator, alive: Callable[[], None], handles: int = -1) -> Iterator[RemoteOp]:
    """Start an op's process, which ends with the context. It is ready once it was heard.

    alive: called while the process works. handles: where the parent gets a handle of it.
    Raises UnsharedError if calls must be repeated and cannot.
    """
    if device.info.kind == "cuda" and not device.can_replay:
        raise UnsharedError(Reason("not_replayable", {"what": as_fact("calls of a Triton that perfci does not know")}))
    arena = Arena.create()
    with tempfile.TemporaryDirectory(prefix="perfci-") as folder:
        task = replace(host.task, arena=arena.descriptor)
        with start_worker(task, host.around, (arena.descriptor,)) as process:
            give_handle(process.pid, handles)
            source = find_kernel(task.place.ops[0].name, task.folder)
            op = RemoteOp(process, device, arena, Path(folder), source, alive)
            yield op


def repeat_own(
    function: Callable[..., Any],
    device: Accelerator,
    folder: Path,
    elsewhere: Callable[[Inputs], Callable[..., Any] | None],
) -> Callable[..., Any]:
    """A function of this process, repeated from recordings as the other process's kernel is, if that is possible.

    elsewhere: gives the same function in another process, where this one cannot see all that a call does.
    """
    programs: dict[str, Callable[..., Any]] = {}

    def call(**inputs: Any) -> Any:
        if other := elsewhere(inputs):
            return other(**inputs)
        key = device.key_of(inputs)
        if key not in programs:
            function(**inputs)  # it compiles and tunes
            recording = device.record(function, inputs)
            played = device.play(recording, folder) if isinstance(recording, Recording) else None
            programs[key] = played if callable(played) else function
        return programs[key](**inputs)

    return call if device.can_replay else function
