"""Requests to a cluster: which one, commands of perfci that its boards run, and the answers."""

import io
import tarfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from perfci.core import extensions
from perfci.core.errors import UsageError
from perfci.core.files import read_regular
from perfci.core.model import Judgements, Reason, Run
from perfci.core.settings import Settings
from perfci.core.temporary import temporary_folder
from perfci.runs.bench import Listener
from perfci.runs.plan import Request
from perfci.store.files import copy_folder, write_atomically

HERE = "here"  # in the place of an address: no cluster


@dataclass(frozen=True)
class Node:
    """A node of a cluster."""

    name: str
    boards: int
    model: str = ""  # of its boards, such as H200. Empty if the cluster does not name one


@dataclass(frozen=True)
class NodeCommand:
    """A command of perfci for one board of a cluster."""

    words: Sequence[str]
    given: Mapping[Path, bytes] = field(default_factory=dict)  # files that it finds beside those of the work tree
    kept: Sequence[Path] = ()  # files and folders that come back
    variables: Mapping[str, str] | None = None  # of its environment. None: those of a reader here


@dataclass(frozen=True)
class NodeAnswer:
    """The outcome."""

    node: Node
    code: int
    out: str
    packed: bytes  # an archive of what is kept


class Cluster(Protocol):
    """A cluster that this process is connected to."""

    @property
    def device(self) -> str:
        """The kind of its boards: cuda, npu, cpu, or fake if that was asked for."""

    def run(
        self, settings: Settings, commands: Mapping[int, NodeCommand],
        keep: Callable[[int, NodeAnswer], Reason | None], revisions: Sequence[str] = (),
    ) -> list[Reason]:  # fmt: skip
        """Have boards do commands. Returns why nodes had no answer.

        keep: gets the number of a command and what came of it, and returns why another node has to do it, or None.
        revisions: commits that nodes get beside HEAD. Raises UsageError if the cluster is lost.
        """

    def find_fault(self, run: Run, node: Node, first: Run | None = None, aside: Collection[str] = ()) -> Reason | None:
        """Returns what is wrong with the board of a node that measured a run. aside: UUIDs of sick boards."""


class ClusterKind(Protocol):
    """Clusters that an extension offers for --on."""

    def check(
        self, settings: Settings, request: Request, address: str, command: str, listener: Listener
    ) -> tuple[Run, Judgements]:
        """Check on the boards of a cluster. Raises UsageError."""

    def open(self, address: str, device: str) -> AbstractContextManager[Cluster]:
        """Connect to a cluster. device: `auto` takes what it has. Raises UsageError."""


def find_kind() -> ClusterKind:
    """Returns what offers clusters. Raises UsageError if no extension does."""
    kind: ClusterKind | None = next(extensions.provided("cluster"), None)
    if kind is None:
        raise UsageError("extension_missing", name="ray", option="--on, or cluster in [tool.perfci],")
    return kind


def choose_cluster(on: str | None, settings: Settings) -> str | None:
    """The cluster that --on names, or the project's. None if there is none, or if --on says so."""
    return None if on == HERE else on or settings.cluster


def unpack(packed: bytes, places: Sequence[Path]) -> None:
    """Put the files and folders that a command kept into their places, but for those that are missing."""
    with temporary_folder("cluster") as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        for number, place in enumerate(places):
            if (kept := folder / str(number)).is_dir():
                copy_folder(kept, place)
            elif kept.is_file():
                write_atomically(place, read_regular(kept))
