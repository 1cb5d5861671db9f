"""The leader's side of a group: it starts the ranks' processes, asks all of them the same, and ends them whole.

One that dies, raises or hangs ends the group within the time limit. What is said of it names the rank that the others
wait for.
"""

import contextlib
import multiprocessing
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, Protocol, Self

from perfci.core.codec import decode, encode
from perfci.core.errors import PerfciError
from perfci.core.model import Fact
from perfci.extensions.ranks.checks import CALLS
from perfci.extensions.ranks.progress import Position, Progress, Step
from perfci.extensions.ranks.records import Answer, Ask, RankPlace

GRACE_S = 5.0  # for the other ranks, once one has raised: they may raise the same, or wait for it for ever
GLANCE_S = 0.5
STACK_S = 1.0  # for ranks to write their stacks
END_S = 5.0

WAITS = frozenset({"barrier", "synchronize", "wait", "await_flag", "wait_signal", "_await"})
"""Names of functions in which a rank waits for others, as Python's stack has them."""

FUNCTIONS = {Step.INPUTS: "make_inputs", Step.WAITING: "synchronize", Step.MEETING: "init_process_group"}
"""What a rank is in, of which there is no stack."""

_THREAD = re.compile(r"^(?:Current thread|Thread) 0x", re.MULTILINE)
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<name>\S+)')


class BrokenGroupError(PerfciError):
    """A group can do nothing more: a rank died, hangs or raised while others wait for it."""


class Ranks(Protocol):
    """A group that can be asked."""

    def ask(self, ask: Ask) -> Sequence[Answer]:
        """Ask all ranks the same. Returns their answers in order. Raises BrokenGroupError."""

    def end(self) -> None:
        """End all of its processes."""


@dataclass(frozen=True)
class Frame:
    """Where a rank's host is."""

    file: str
    line: int
    name: str

    @property
    def waits(self) -> bool:
        """Whether it waits for others there."""
        return self.name in WAITS or "/torch/distributed/" in self.file

    @property
    def text(self) -> str:
        """For a sentence."""
        path = Path(self.file)
        name = f"{path.parent.name}/{path.name}" if path.name == "__init__.py" else path.name
        return f"{name}:{self.line} ({self.name})"


class Group:
    """The processes of one group."""

    def __init__(
        self, places: Sequence[RankPlace], alive: Callable[[], None], serve: Callable[..., None] | None = None
    ) -> None:
        """`alive` is called while the ranks are at work. `serve` is the program of a rank."""
        from perfci.extensions.ranks.rank import serve_rank  # which imports torch: before the fork, once for all ranks

        self._places, self._alive = places, alive
        self._progress = Progress.make(places[0].places, len(places))
        context, pipes = multiprocessing.get_context("fork"), [multiprocessing.Pipe() for _ in places]
        self._pipes: list[Connection] = [ours for ours, _ in pipes]
        self._processes: list[Any] = []
        with warnings.catch_warnings(), Path(os.devnull).open() as nothing:
            warnings.simplefilter("ignore")  # of threads: the only other one reads the parent's line, and holds no lock
            before, sys.stdin = sys.stdin, nothing  # closed in each process, and another thread may be reading it
            for place, (_, theirs) in zip(places, pipes, strict=True):
                others = (*self._pipes, *(end for _, end in pipes if end is not theirs))
                process = context.Process(target=serve or serve_rank, args=(place, theirs, others), daemon=True)
                process.start()
                self._processes.append(process)
            sys.stdin = before
        for _, theirs in pipes:
            theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pids(self) -> tuple[int, ...]:
        """Of the ranks' processes."""
        return tuple(process.pid for process in self._processes)

    def ask(self, ask: Ask) -> Sequence[Answer]:
        """Ask all ranks the same. Returns their answers in order. Raises BrokenGroupError."""
        began, limit_s = time.monotonic(), self._places[0].limit_s
        answers: dict[int, Answer] = {}
        for rank, pipe in enumerate(self._pipes):
            try:
                pipe.send_bytes(encode(ask))
            except OSError:
                raise self._explain_death(rank, ask, answers) from None
        while len(answers) < len(self._pipes):
            self._alive()
            left: dict[Any, int] = {pipe: rank for rank, pipe in enumerate(self._pipes) if rank not in answers}
            ready: list[Any] = wait([*left], GLANCE_S)
            for rank in (left[pipe] for pipe in ready):
                try:
                    answers[rank] = decode(self._pipes[rank].recv_bytes(), Answer)
                except (EOFError, OSError):
                    raise self._explain_death(rank, ask, answers) from None
                if answers[rank].failure:
                    limit_s = min(limit_s, time.monotonic() - began + GRACE_S)
            if time.monotonic() - began > limit_s and len(answers) < len(self._pipes):
                raise self._explain_silence(ask, answers)
        return [answers[rank] for rank in sorted(answers)]

    def end(self) -> None:
        """Kill all processes of the group and wait for them: a group is given back whole."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, OSError):
                process.kill()
        for process, pipe in zip(self._processes, self._pipes, strict=True):
            process.join(END_S)
            pipe.close()

    # --- what is wrong

    def _explain_death(self, rank: int, ask: Ask, answers: Mapping[int, Answer]) -> BrokenGroupError:
        process = self._processes[rank]
        process.join(END_S)
        code = process.exitcode
        names = {entry.value: entry.name for entry in signal.Signals}
        how = names.get(-code, f"signal {-code}") if code is not None and code < 0 else f"status {code}"
        places = self._find_places([other for other in range(len(self._pipes)) if other != rank])
        # What lost its peer may have raised an error by now.
        raised = {other: answer.failure for other, answer in answers.items() if answer.failure}
        places |= {other: str(failure.facts.get("error", failure.kind)) for other, failure in raised.items()}
        facts: dict[str, Fact] = {**self._where(ask), "rank": rank, "how": how, "waiting": _name_places(places)}
        return BrokenGroupError("ranks_died" if places else "ranks_died_last", **facts)

    def _explain_silence(self, ask: Ask, answers: Mapping[int, Answer]) -> BrokenGroupError:
        """Who waits for whom, by the ranks' positions and stacks."""
        raised = next((answer.failure for answer in answers.values() if answer.failure), None)
        if raised:
            return BrokenGroupError(raised.kind, **raised.facts)
        silent = [rank for rank in range(len(self._pipes)) if rank not in answers]
        positions, frames = self._progress.read(), self._ask_stacks(silent)
        facts = {**self._where(ask), "limit_s": self._places[0].limit_s}
        late, waiting = sort_silent({rank: positions[rank] for rank in silent}, frames)
        if late:
            places = self._name_all({rank: positions[rank] for rank in late}, frames)
            facts |= {"late": _name(late), "count": len(late), "at": _name_places(places)}
            facts |= {"waiting": _name(waiting), "waiters": len(waiting)}
            return BrokenGroupError("ranks_hung_late" if waiting else "ranks_hung_busy", **facts)
        ended = {rank: positions[rank].ended for rank in silent}
        behind = [rank for rank in silent if ended[rank] == min(ended.values())]
        ahead = [rank for rank in range(len(self._pipes)) if rank not in behind]
        order = ask.order or (CALLS if ask.do == "check" else ())
        launch = order[ended[behind[0]]] if ended[behind[0]] < len(order) else ask.do
        facts |= {"waiting": _name(behind), "waiters": len(behind), "others": _name(ahead)}
        facts |= {"launch": launch, "number": ended[behind[0]] + 1}
        facts |= {"at": _name_places(self._name_all({rank: positions[rank] for rank in behind}, frames))}
        return BrokenGroupError("ranks_hung_unsent" if ahead else "ranks_hung_all", **facts)

    def _find_places(self, ranks: Sequence[int]) -> dict[int, str]:
        """Where each of these ranks is, without those that have answered."""
        frames, positions = self._ask_stacks(ranks), self._progress.read()
        return self._name_all({rank: positions[rank] for rank in ranks}, frames)

    def _name_all(self, positions: Mapping[int, Position], frames: Mapping[int, Frame]) -> dict[int, str]:
        """Where ranks are, in words: by their stacks, else by the function that their positions stand for."""
        names = {Step.CALLING: self._places[0].head.op, **FUNCTIONS}
        return {
            rank: frames[rank].text if rank in frames else names[position.step]
            for rank, position in positions.items()
            if position.step is not Step.ANSWERED
        }

    def _where(self, ask: Ask) -> dict[str, Fact]:
        return {"op": self._places[0].head.op, "case": ask.case or ask.do, "ranks": len(self._places)}

    def _ask_stacks(self, ranks: Sequence[int]) -> dict[int, Frame]:
        """Where each of these ranks' hosts is: the innermost frame that waits, else the innermost of the op."""
        paths = {rank: self._places[rank].stack for rank in ranks}
        sizes = {rank: _size(path) for rank, path in paths.items()}
        for rank in ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._processes[rank].pid, signal.SIGUSR1)
        until = time.monotonic() + STACK_S
        while time.monotonic() < until and any(_size(paths[rank]) == sizes[rank] for rank in ranks):
            time.sleep(0.02)
        time.sleep(0.05)  # for the rest of a stack
        found = {}
        for rank, path in paths.items():
            text = path.read_bytes().decode(errors="replace") if path.exists() else ""
            if frame := find_frame(text, self._places[rank].head.shared):
                found[rank] = frame
        return found


def find_frame(text: str, shared: Path) -> Frame | None:
    """Where a rank is, of its stack as faulthandler writes it: where it waits, else its innermost line of the op.

    shared: the folder of all ops. None of an empty stack.
    """
    main = _THREAD.split(text)[-1]  # of all threads: any of them may have got the signal
    matches = [match for line in main.splitlines() if (match := _FRAME.match(line))]
    frames = [Frame(match["file"], int(match["line"]), match["name"]) for match in matches]
    theirs = [frame for frame in frames if Path(frame.file).is_relative_to(shared)]
    waiting = [frame for frame in frames if frame.waits]
    # What waits inside of the op's last line is why it is there.
    return next(iter(waiting), None) or next(iter(theirs), None) or next(iter(frames), None)


def sort_silent(positions: Mapping[int, Position], frames: Mapping[int, Frame]) -> tuple[list[int], list[int]]:
    """Ranks that keep others waiting, and ranks that wait. Nobody is late if all wait: for what was never sent."""
    waiting = [
        rank
        for rank, position in positions.items()
        if position.step in {Step.WAITING, Step.MEETING} or (rank in frames and frames[rank].waits)
    ]
    late = [rank for rank in positions if rank not in waiting]
    return late, waiting


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _name(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks))


def _name_places(places: Mapping[int, str]) -> str:
    return "; ".join(f"{rank}: {place}" for rank, place in places.items())


def make_places(first: RankPlace, boards: Sequence[int], folder: Path) -> tuple[RankPlace, ...]:
    """The places of all ranks of a new group. boards: index of each rank's device. folder: an empty one of theirs."""
    first = replace(first, ranks=len(boards), meeting=folder / "meeting", places=folder / "places")
    return tuple(
        replace(first, rank=rank, board=board, stack=folder / f"stack-{rank}") for rank, board in enumerate(boards)
    )
