"""Does the advice of `perfci profile` help? A policy that follows it against one that edits tuned entries at random.

    python benchmarks/advice.py [--device auto] [--op OP ...] [--starts 2] [--rounds 5] [--budget 0.5] [--seed 1]
                                [--key nvidia-h200] [--out FILE]

Each op of a copy of this project begins with a tuned entry drawn at random. From the same start both policies get the
same number of rounds, and every round is judged by `perfci try`. What is kept is where the next round begins.

advised     profiles the best so far, and takes the first advice that an edit of the entry can follow: one value, one
            step. If no advice is left, it edits at random: such rounds are counted
random      changes one value of the entry to another one of its list, not tried before

For each start the gain of the best round over the start, by the last duel. Then of each policy the geometric mean of
how many times as fast the best is, the rounds kept, and of each kind of advice the rounds kept. --device fake needs no
torch: three made-up ops. Time and counters follow from block, warps and stages. It shows that all of this works,
and nothing about advice, as the counters there are planted.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import random
import shutil
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from speed import git, machine

from perfci.core.errors import PerfciError
from perfci.core.settings import Settings, load
from perfci.core.wording import sentence
from perfci.extensions.agents.logbook import Round, RoundVerdict
from perfci.extensions.agents.profile_records import Profile
from perfci.extensions.agents.profiles import profile_op
from perfci.extensions.agents.rounds import try_round
from perfci.extensions.lab.tune.files import Space, list_regimes, read_space
from perfci.extensions.lab.tune.records import Config, describe_config, key, nest
from perfci.runs.plan import Request

ROOT = Path(__file__).resolve().parents[1]
POLICIES = ("advised", "random")
TILES = ("tile", "block", "elements")  # what the names of tile sizes begin with

EDITS: Mapping[str, tuple[tuple[str, int], ...]] = {
    "fewer_warps": (("warps", -1),),
    "more_warps": (("warps", 1),),
    "more_stages": (("stages", 1),),
    "larger_tiles": (("TILES", 1),),
    "smaller_tiles": (("TILES", -1),),
    "more_programs": (("TILES", -1), ("programs", 1), ("split", 1)),
    "fewer_registers": (("TILES", -1), ("warps", 1)),
    "less_shared": (("stages", -1), ("TILES", -1)),
    "less_traffic": (("group", 1), ("TILES", 1)),
    "wider_loads": (("TILES", 1), ("warps", -1)),
}
"""Kind of advice -> values of an entry that follow it, and the direction of the step. Others need other code."""


@dataclass(frozen=True)
class Scene:
    """What is optimised of an op: cases, and the entry of `space.json` that serves them, by its place there."""

    op: str
    pattern: str | None
    entry: int
    names: Mapping[str, Any] = field(default_factory=dict)  # for the space's rules, beside the device's


SCENES = (
    Scene("vector_add", "shape=(32768;4096),*", 3),
    Scene("softmax", "cols=131072,*", 7, {"itemsize": 2}),
    Scene("matmul", "m=4096,n=4096,*", 6, {"itemsize": 2}),
)


@dataclass
class Story:
    """The rounds of one policy from one start."""

    policy: str
    rounds: list[Round] = field(default_factory=list)
    guessed: int = 0  # rounds of the advised policy without advice

    @property
    def factor(self) -> float:
        """How many times as fast as the start the best round is."""
        kept = [round_ for round_ in self.rounds if round_.verdict is RoundVerdict.KEPT]
        return 1 + kept[-1].total.value if kept and kept[-1].total else 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--key", default="nvidia-h200", help="of the device: the name of its tuned files")
    parser.add_argument("--op", nargs="+")
    parser.add_argument("--starts", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.5, help="seconds of device time a case for the first looks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="write the rounds as JSON too")
    asked = parser.parse_args()
    print(f"Advice against chance, {asked.rounds} rounds each: {machine()}", flush=True)
    scenes = FAKE_SCENES if asked.device == "fake" else SCENES
    stories: list[tuple[str, int, Story]] = []
    for scene in [scene for scene in scenes if asked.op is None or scene.op in asked.op]:
        for number in range(asked.starts):
            drawn = random.Random(f"{asked.seed}/{scene.op}/{number}")
            for story in compare(scene, drawn, asked):
                stories.append((scene.op, number, story))
                show(scene.op, number, story)
    print(*summarise([story for _, _, story in stories]), sep="\n")
    if asked.out:
        told = [
            {
                "op": op,
                "start": at,
                "policy": story.policy,
                "factor": story.factor,
                "rounds": [*map(describe, story.rounds)],
            }
            for op, at, story in stories
        ]
        asked.out.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def compare(scene: Scene, drawn: random.Random, asked: argparse.Namespace) -> Iterator[Story]:
    """Both policies from one start that works."""
    for _ in range(20):
        with tempfile.TemporaryDirectory(prefix="perfci-advice-") as name:
            bench = Bench(Path(name), scene, asked)
            start = drawn.choice(bench.points)
            try:
                first = bench.profile(start)
            except PerfciError as error:
                print(f"{scene.op}: {describe_config(start)} does not work: {error}", flush=True)
                continue
            if first.device.key != bench.key:
                raise SystemExit(f"this device is {first.device.key}: name it by --key")
            if all(case.us for case in first.cases):
                print(f"{scene.op} from {describe_config(start)}, counters: {first.source}", flush=True)
                break
    else:
        raise SystemExit(f"no start of {scene.op} works")
    for policy in POLICIES:
        with tempfile.TemporaryDirectory(prefix="perfci-advice-") as name:
            yield Bench(Path(name), scene, asked).play(policy, start, first, random.Random(drawn.random()))


class Bench:
    """A project with one op, and one entry in its tuned file."""

    def __init__(self, folder: Path, scene: Scene, asked: argparse.Namespace) -> None:
        self._scene, self._rounds = scene, asked.rounds
        self._root, self.key = folder / "project", "fake-one" if asked.device == "fake" else asked.key
        write_project(self._root, scene.op, fake=asked.device == "fake")
        self._settings: Settings = dataclasses.replace(load(self._root), rounds=self._rounds)
        self._request = Request((scene.op,), scene.pattern, asked.device, asked.budget)
        space = read_space(scene.op, self._root / "kernels" / scene.op)
        self._lists = list_regimes(space, ())[scene.entry].lists
        self.points = list_valid(space, self._lists, {**read_names(self._root, self.key), **scene.names})

    def profile(self, config: Config) -> Profile:
        """The profile of the op with this entry."""
        self._write(config)
        return profile_op(self._settings, self._request, ignore)

    def play(self, policy: str, start: Config, first: Profile, drawn: random.Random) -> Story:
        """All rounds of a policy. first: the profile of the start."""
        story, best, tried, profile = Story(policy), start, {key(start)}, first
        self._write(start)
        git(self._root, "init", "-q", "-b", "main")
        (self._root / ".gitignore").write_text("reports/\n__pycache__/\n", encoding="utf-8")
        git(self._root, "add", "--all")
        git(self._root, "commit", "-q", "-m", "start")
        for _ in range(self._rounds):
            advice, config = None, None
            if policy == "advised":
                advice, config = self._follow(profile, best, tried)
                story.guessed += config is None
            config = config or self._guess(best, tried, drawn)
            if config is None:
                break
            tried.add(key(config))
            self._write(config)
            why = f"{advice or 'at random'}: {describe_config(config)}"
            outcome = try_round(self._settings, self._request, why, ignore, advice=advice)
            story.rounds.append(outcome)
            if outcome.verdict is RoundVerdict.KEPT:
                best = config
                if policy == "advised" and len(story.rounds) < self._rounds:
                    profile = self.profile(best)
            self._write(best)
        return story

    def _follow(self, profile: Profile, best: Config, tried: set[str]) -> tuple[str | None, Config | None]:
        """The first advice that some edit follows, that of the case which takes longest first, and the edited entry."""
        cases = sorted(profile.cases, key=lambda case: -(case.us or 0.0))
        for proposal in (advice for case in cases for advice in case.advice):
            for name, step in EDITS.get(proposal.id, ()):
                for config in self._move(best, name, step):
                    if key(config) not in tried:
                        return proposal.id, config
        return None, None

    def _move(self, config: Config, name: str, step: int) -> Iterator[Config]:
        """The entry with one such value a step further, if that is allowed."""
        for parameter, values in self._lists.items():
            plain = parameter.rpartition(".")[2]
            if plain.startswith(TILES) if name == "TILES" else plain.startswith(name):
                place = values.index(config[parameter]) + step
                changed = {**config, parameter: values[place]} if 0 <= place < len(values) else config
                if changed in self.points and changed != config:
                    yield changed

    def _guess(self, best: Config, tried: set[str], drawn: random.Random) -> Config | None:
        near = [point for point in self.points if sum(point[name] != best[name] for name in best) == 1]
        left = [config for config in near if key(config) not in tried]
        return drawn.choice(left) if left else None

    def _write(self, config: Config) -> None:
        path = self._root / "kernels" / self._scene.op / "tuned" / f"{self.key}.json"
        entry = {**self._scene.names, "config": nest(config)}
        path.write_text(json.dumps({"configs": [entry]}) + "\n", encoding="utf-8")


def ignore(message: object) -> None:
    """Hear nothing."""


def list_valid(space: Space, lists: Mapping[str, Sequence[Any]], names: Mapping[str, Any]) -> list[Config]:
    """All entries that keep to the space's rules."""
    points: list[dict[str, Any]] = [{}]
    for name, values in lists.items():
        points = [{**point, name: value} for point in points for value in values]
    return [point for point in points if space.is_valid(point, names)]


def read_names(root: Path, device: str) -> dict[str, Any]:
    """What rules may name of the device."""
    path = root / "kernels" / "_devices" / f"{device}.json"
    names = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {name: value["value"] for name, value in names.items()}


def write_project(root: Path, op: str, *, fake: bool) -> None:
    """The op, and what ops share, as a separate project."""
    kernels = root / "kernels"
    kernels.mkdir(parents=True)
    if fake:
        write_fake(kernels / op, op)
        (root / "pyproject.toml").write_text("[tool.perfci.fake]\nspike_share = 0.0\n", encoding="utf-8")
        return
    shutil.copytree(ROOT / "kernels" / op, kernels / op, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "kernels" / "_devices", kernels / "_devices")
    for path in (ROOT / "kernels").glob("_*.py"):
        shutil.copy(path, kernels / path.name)
    (root / "pyproject.toml").write_text("[tool.perfci]\n", encoding="utf-8")


# --- the answer -------------------------------------------------------------------------------------------------------


def describe(round_: Round) -> dict[str, Any]:
    """A round for the file."""
    gain = None if round_.gain is None else round_.gain.value
    total = None if round_.total is None else round_.total.value
    return {
        **{name: getattr(round_, name) for name in ("number", "why", "advice", "seconds")},
        "verdict": str(round_.verdict), "gain": gain, "total": total,
        "changed": [dataclasses.asdict(change) for change in round_.changed],
        "reasons": [sentence(reason) for reason in round_.reasons],
    }  # fmt: skip


def show(op: str, number: int, story: Story) -> None:
    """A line a round, and what came of all."""
    for turn in story.rounds:
        gain = "-" if turn.gain is None else f"{turn.gain.value:+.1%}"
        print(f"  {story.policy:8} {turn.number}: {turn.verdict:8} {gain:>8}  {turn.seconds or 0:5.1f} s  {turn.why}")
    print(f"{op}, start {number}, {story.policy}: {story.factor:.3f} times as fast as the start", flush=True)


def summarise(stories: Sequence[Story]) -> Iterator[str]:
    """Both policies side by side."""
    for policy in POLICIES:
        mine = [story for story in stories if story.policy == policy]
        rounds = [round_ for story in mine for round_ in story.rounds]
        mean = math.exp(sum(math.log(story.factor) for story in mine) / max(len(mine), 1))
        kept = sum(round_.verdict is RoundVerdict.KEPT for round_ in rounds)
        guessed = sum(story.guessed for story in mine)
        more = f", {guessed} of them without advice" if guessed else ""
        yield f"{policy}: {mean:.3f} times as fast as {len(mine)} starts, {kept} of {len(rounds)} rounds kept{more}"
    pairs = list(
        zip(*([story.factor for story in stories if story.policy == policy] for policy in POLICIES), strict=True)
    )
    better, worse = (
        sum(first > 1.01 * second for first, second in ordered) for ordered in (pairs, [pair[::-1] for pair in pairs])
    )
    yield f"advised is over 1 % better from {better} starts, worse from {worse}, of {len(pairs)}"
    tried = Counter(round_.advice for story in stories for round_ in story.rounds if round_.advice)
    for kind, count in tried.most_common():
        kept = sum(
            round_.advice == kind and round_.verdict is RoundVerdict.KEPT
            for story in stories
            for round_ in story.rounds
        )
        yield f"  {kind}: kept {kept} of {count}"


# --- made-up ops ------------------------------------------------------------------------------------------------------

FAKE_SCENES = tuple(Scene(op, None, 0) for op in ("wide", "deep", "tall"))
_BEST = {"wide": (4096, 8, 2), "deep": (1024, 2, 4), "tall": (8192, 16, 3)}
_SPACE = {"block": [512, 1024, 2048, 4096, 8192], "warps": [1, 2, 4, 8, 16], "stages": [1, 2, 3, 4]}

_KERNEL = """
    import json
    from math import log2
    from pathlib import Path

    import numpy as np
    from perfci.device import fake

    FILE = Path(__file__).parent / "tuned" / "fake-one.json"
    BLOCK, WARPS, STAGES = {best}

    def {op}(x):
        config = json.loads(FILE.read_text())["configs"][0]["config"]
        block, warps = (log2(config[name] / best) for name, best in (("block", BLOCK), ("warps", WARPS)))
        stages = config["stages"] - STAGES
        counters = {{"stall_wait": 0.3 if block < 0 else 0.0, "stall_no_instruction": 0.3 if block > 0 else 0.0}}
        counters |= {{"stall_barrier": 0.1 * max(warps, 0), "stall_long_scoreboard": 0.2 * max(-stages, 0)}}
        counters |= {{"occupancy": 0.1 if warps < 0 else 0.6}}
        fake.work(40.0 * (1 + 0.10 * abs(block) + 0.15 * abs(warps) + 0.12 * abs(stages)), **counters)
        return np.exp(x)
    """
_BASELINE = """
    import numpy as np
    from perfci.device import fake

    def {op}(x):
        fake.work(60.0)
        return np.exp(x)

    def make_inputs(n, dtype, device, seed):
        return {{"x": np.random.default_rng(seed).standard_normal(n).astype(dtype)}}
    """
_SUITE = """
    import perfci
    from {op}_baseline import make_inputs, {op} as reference
    from {op}_triton import {op} as kernel

    {part} = perfci.{kind}(
        kernel=kernel, reference=reference, make_inputs=make_inputs,
        cases=perfci.grid(n=[4096, 8192], dtype=["float32"]){more},
    )
    if __name__ == "__main__":
        perfci.main({part})
    """


def write_fake(folder: Path, op: str) -> None:
    """An op that is fastest with the entry in _BEST."""
    (folder / "tuned").mkdir(parents=True)
    (folder / "tuned" / "space.json").write_text(json.dumps({"config": _SPACE}), encoding="utf-8")
    moved = ", bytes_moved=lambda n, dtype: 8 * n"
    texts = {
        "triton": _KERNEL.format(op=op, best=_BEST[op]),
        "baseline": _BASELINE.format(op=op),
        "accuracy": _SUITE.format(op=op, part="accuracy", kind="Accuracy", more=""),
        "performance": _SUITE.format(op=op, part="performance", kind="Performance", more=moved),
    }
    for part, text in texts.items():
        (folder / f"{op}_{part}.py").write_text(f'"""A made-up op."""\n{textwrap.dedent(text)}', encoding="utf-8")


if __name__ == "__main__":
    began = time.monotonic()
    main()
    print(f"{time.monotonic() - began:.0f} s in all")
