"""Commands that set a project up, add to it, and list what it holds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from perfci.cli.options import HERE, Case, DeviceKind, DeviceOption, Format, Lang, Ops, Output, Project


def init(
    owners: Annotated[
        list[str],
        typer.Option(
            "--owners",
            metavar="@TEAM",
            show_default="a line to fill in",
            help="Who approves changes to thresholds/ and baselines/; repeat for several.",
        ),
    ] = [],  # noqa: B006
    install: Annotated[
        str | None,
        typer.Option(
            "--install",
            metavar="SPEC",
            show_default="as perfci was installed here",
            help="What pip installs perfci from in CI, such as git+https://HOST/perfci.git@TAG.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", show_default="off", help="Show the changes, and write nothing.")
    ] = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Set a repository up: folders, thresholds, settings, CI jobs, owners; shows what it adds, takes nothing away."""
    from perfci.cli import init as init_module

    return init_module.set_up(project, owners, install, dry_run=dry_run)


def new_(
    op: Annotated[
        str, typer.Argument(metavar="OP", help="Name of the op, perhaps in folders: flash, attention/flash.")
    ],
    source: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="FILE:FUNCTION",
            show_default="a kernel to fill in",
            help="Make an op of a function that launches Triton kernels.",
        ),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference",
            metavar="PATH",
            show_default="none",
            help="What --from is compared with, by its dotted path: torch.nn.functional.softmax.",
        ),
    ] = None,
    sketches: Annotated[
        Path | None,
        typer.Option(
            "--from-kernelgen", metavar="DIR", show_default="none", help="Make an op of KernelGen's files in a folder."
        ),
    ] = None,
    version: Annotated[
        int | None,
        typer.Option("--version", metavar="N", min=0, show_default="the newest", help="Which of KernelGen's versions."),
    ] = None,
    fake: Annotated[
        bool,
        typer.Option("--fake", show_default="off", help="An op for the fake device, to try perfci out without torch."),
    ] = False,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """Write a new op's four files: ready to run, around a function that you have, or of KernelGen's sketches."""
    from perfci.cli import new

    return new.make(op, project, source=source, reference=reference, sketches=sketches, version=version, fake=fake)


def list_(
    op: Ops = [],  # noqa: B006
    case: Case = None,
    chains: Annotated[
        bool,
        typer.Option(
            "--chains",
            show_default="off",
            help="The chains of ops with their stages and cases, in the place of the ops.",
        ),
    ] = False,
    device: DeviceOption = DeviceKind.AUTO,
    output: Output = Format.TEXT,
    project: Project = HERE,
    lang: Lang = None,
) -> int:
    """List the ops with their cases, those of tensors stored in low precision included, and the chains of ops."""
    from perfci.cli import answers

    listed = answers.list_chains if chains else answers.list_ops
    return listed(op, case, device, project, json=output is Format.JSON)


def demo(
    keep: Annotated[
        Path | None,
        typer.Option("--keep", metavar="DIR", show_default="a temporary folder", help="Where to build the project."),
    ] = None,
    lang: Lang = None,
) -> int:
    """See a red gate in ten seconds: a fake device, one kernel made slower and one wrong. No torch needed."""
    from perfci.cli import demo as demonstration

    return demonstration.demo(keep)
