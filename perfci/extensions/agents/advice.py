"""Advice of an op's profile, in the op's part of a report, as long as no file of the op has changed since."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from perfci.core.errors import StoredFileError
from perfci.core.model import OpRun, Run
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.agents.profile_records import Advice, Profile
from perfci.extensions.agents.profiles import read_profile
from perfci.ops.fingerprint.tree import Tree
from perfci.report.text import code, plain
from perfci.report.view import Picture, Section


@dataclass(frozen=True)
class AdviceSections:
    """The advice of the last profile of each op of a run."""

    device: str  # key of the run's
    settings: Settings

    def draw(self, op: OpRun, painter: Any, name: str) -> Iterator[Picture]:
        """Draw nothing."""
        yield from ()

    def section(self, op: OpRun, pictures: Sequence[Picture]) -> Section | None:
        """Make the section of an op. None without a profile of these files on this device."""
        profile = self._read(op.op)
        if profile is None:
            return None
        told = say("By a profile of {created} on {device}.", created=profile.time, device=profile.device.name)
        return Section(say("What holds it back"), texts=(plain(told),), lines=tuple(_list_advice(profile)))

    def _read(self, op: str) -> Profile | None:
        with suppress(StoredFileError):  # `perfci brief` says so
            profile = read_profile(self.settings, op)
            if profile and profile.device.key == self.device:
                now = Tree(self.settings.root, self.settings.kernels).fingerprint(op)
                return profile if profile.digest == now.digest else None
        return None


def read_sections(run: Run, settings: Settings, _rules: Settings) -> AdviceSections:
    """Returns what profiles advise for a run's ops."""
    return AdviceSections(run.environment.device.key, settings)


def _list_advice(profile: Profile) -> Iterator[str]:
    """Yields each direction once, the most promising first, with the number of cases in which it promises most."""
    kinds: dict[str, list[Advice]] = {}
    for case in profile.cases:
        for advice in case.advice:
            kinds.setdefault(advice.id, []).append(advice)
    for kind, cases in sorted(kinds.items(), key=lambda item: -max(one.speedup for one in item[1])):
        best = max(cases, key=lambda one: one.speedup)
        counted = say("In {count} of {cases:case|cases}.", count=len(cases), cases=len(profile.cases))
        yield f"{code(kind)}: {plain(sentence(best.reason))} {counted}"
