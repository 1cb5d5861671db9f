"""Peers in the report: geometric means with the worst case, tables by what ops have in common, hostile names."""

from dataclasses import replace

from perfci.core.model import Comparison, Interval, Judgement, Judgements, PeerFigure, Reason, Suite, Verdict
from perfci.extensions.pictures.page import render
from perfci.report import build, markdown, peers
from perfci.report.data import to_json
from perfci.report.frame import Clocks
from perfci.report.sections import Material
from perfci.report.text import plain, strong


def ratio(value, share=0.01, confidence=0.95):
    return Interval(value, value * (1 - share), value * (1 + share), confidence)


def lines(rows):
    return tuple(map(plain, peers.describe_peers(rows)))


def figure(name, value, **changes):
    return PeerFigure(name, 10.0 * value, ratio(value, **changes))


def left_out(name, op, case, kind="peer_unsupported", message="too wide"):
    return PeerFigure(name, failure=Reason(kind, {"op": op, "peer": name, "case": case, "message": message}))


def row(op, case, *figures, speedup=1.5, verdict=Verdict.PASS):
    seen = Comparison(op, case, speedup=ratio(speedup), kernel_us=10.0, reference_us=10.0 * speedup, peers=figures)
    return Judgement(op, Suite.PERFORMANCE, case, verdict, (Reason("new_case", {}),), seen)


def test_an_ops_line_has_the_geometric_mean_and_the_worst_case_of_reference_and_peers():
    rows = [row("norm", "n=1", figure("compiled", 0.9), speedup=1.2), row("norm", "n=2", figure("compiled", 1.6))]

    told = "norm: 1.34x the reference (worst 1.20x at n=1), 1.20x compiled (worst 0.900x at n=1)"
    assert lines(rows) == (told,)


def test_each_op_has_a_table_of_its_peers():
    section = peers.make_section([
        row("norm", "n=1", figure("compiled", 1.2)),
        row("attention", "n=1", figure("flash", 1.3), figure("cudnn", 0.8)),
        row("matmul", "n=1"),
    ])  # fmt: skip

    assert [part.title for part in section.parts] == ["norm", "attention"]
    assert section.parts[1].table.columns == (
        "case", "kernel", "the reference", "the reference / kernel", "flash", "flash / kernel", "cudnn",
        "cudnn / kernel", "best",
    )  # fmt: skip
    slower = strong("0.800x (0.792x to 0.808x), kernel slower")
    assert section.parts[1].table.rows[0][-3:] == ("8.00 us", slower, "cudnn")


def test_a_peer_without_any_time_has_no_column_and_reasons_are_told_once():
    rows = [row("norm", f"n={n}", figure("a", 1.1), left_out("b", "norm", "n=0")) for n in range(20)]

    section = peers.make_section(rows)

    assert section.parts[0].table.columns[-2:] == ("a / kernel", "best")
    assert len(section.lines) == 2 and section.lines[1].startswith("The peer b of norm does not support n=0 (too wide)")


def test_nothing_is_told_where_no_peer_was_asked_for():
    assert peers.make_section([row("norm", "n=1")]) is None
    assert peers.describe_peers([row("norm", "n=1")]) == ()


HOSTILE = "<script>alert(1)</script> | **x** @all\x1b[31m"


def _material(examples, figures):
    run, judgements = examples.small()
    rows = tuple(
        replace(row, comparison=replace(row.comparison, peers=figures)) if row.comparison else row
        for row in judgements.rows
    )
    nothing = Clocks(None, None, None, None, None, 0, ())
    return Material(run, Judgements(rows, judgements.needs, judgements.notes), (), nothing)


def test_hostile_names_are_harmless_in_markdown_html_and_json(examples):
    why = Reason("peer_raised", {"op": HOSTILE, "peer": HOSTILE, "error": HOSTILE, "message": HOSTILE})
    material = _material(examples, (figure(HOSTILE, 0.5), PeerFigure("b", failure=why)))

    shown = build.make_report(material)
    text, page = markdown.render(shown), render(material, shown)
    section = text.partition("\n## Side by side\n")[2].partition("\n## ")[0]

    assert "kernel slower" in section and "\x1b" not in text
    assert "<script>alert" not in text and "<script>alert" not in page and "@all" not in section
    assert "kernel slower" in page
    told = [peer for row in to_json(material.judgements)["verdicts"] for peer in row["peers"]]
    assert {peer["name"] for peer in told} == {HOSTILE, "b"} and {peer["faster"] for peer in told} == {True, False}
