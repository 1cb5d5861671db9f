"""`perfci static --coverage`: what each op's accuracy never exercises, cases to add, and lines that no case runs."""

from collections.abc import Iterator, Sequence

from perfci.cli.exits import exit_code
from perfci.cli.output import STYLES, Paragraph, print_found
from perfci.cli.progress import Progress
from perfci.core.model import Coverage, Gate
from perfci.core.settings import Settings
from perfci.core.wording import say, sentence
from perfci.extensions.static.flow import cover
from perfci.judge.notes import explain_feature, note_uncovered


def show_coverage(ops: Sequence[str], where: Settings, *, json: bool) -> int:
    """Print what performance launches and accuracy never does. Exit code 2 if there is any."""
    with Progress() as progress:
        coverages = cover(where, tuple(ops), progress)
    print_found(coverages, tell(coverages), json=json)
    gap = any(op.failure or op.unrun for op in coverages) or any(note_uncovered(coverages))
    return exit_code(Gate.FAILS if gap else Gate.OK, strict=False)


def tell(coverages: Sequence[Coverage]) -> Iterator[Paragraph]:
    """Gaps in each op's accuracy, with the cases to add, then the lines that no case runs."""
    for coverage in coverages:
        count = sum(len(gap.features) for gap in coverage.gaps)
        clean = say("accuracy exercises what performance times on {target}", target=coverage.target)
        gaps = say(
            "{count:thing|things} of performance on {target} never exercised", count=count, target=coverage.target
        )
        title = say("cannot run") if coverage.failure else gaps if count else clean
        yield Paragraph(f"{coverage.op}: {title}", style="bold")
        if coverage.failure:
            yield Paragraph(coverage.failure, 2, STYLES[Gate.FAILS])
        for gap in coverage.gaps:
            yield Paragraph(gap.case, 2)
            yield from (Paragraph(sentence(explain_feature(feature)), 4) for feature in gap.features)
            if gap.add:
                yield Paragraph(say("add: {cases}", cases=gap.add), 4, "green", folds=False)
        if coverage.unrun:
            yield Paragraph(say("no case runs: {lines}", lines=", ".join(coverage.unrun)), 2, STYLES[Gate.WARNS])
        if coverage.unseen:
            yield Paragraph(say("could not be looked through: {cases}", cases="; ".join(coverage.unseen)), 2)
