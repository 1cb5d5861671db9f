"""What `perfci doctor --selftest` reports about its three tries."""

from perfci.extensions.lab.commands.selftest import show_trials
from perfci.extensions.lab.selftest import CaseNoise, SelfTest, Trial
from perfci.statistics.many_duels import Noise
from tests.cli.rendering import lines_of

UNCHANGED, SLOWER, WRONG = (
    Trial("unchanged", 7, 0, 0),
    Trial("slower", 7, 7, 7),
    Trial("wrong", 1, 1, 1),
)
NOISE = CaseNoise("relu", "rows=1", 12.0, 0.015, Noise(12, 0.004, 0.02))


def lines(*trials: Trial, noise: tuple[CaseNoise, ...] = ()) -> list[str]:
    return lines_of(show_trials(SelfTest(trials, noise, "Fake One")))


def test_three_good_tries_are_told_in_a_line_each():
    assert lines(UNCHANGED, SLOWER, WRONG) == [
        "ok: every op against itself: 0 false alarms in 7 cases",
        "ok: twice the allowed slow-down planted: found in 7 of 7 cases",
        "ok: a wrong element planted: found in 1 of 1 ops",
        "perfci can be trusted on this machine: nothing false was said, and what was planted was found.",
    ]


def test_a_false_alarm_fails_and_is_named():
    alarmed = Trial("unchanged", 7, 1, 0, ("relu rows=1",))

    told = lines(alarmed, SLOWER, WRONG)

    assert told[:2] == ["FAIL: every op against itself: 1 false alarms in 7 cases", "      relu rows=1"]
    assert "run `perfci doctor`" in told[-1]


def test_the_noise_table_has_spread_threshold_and_what_would_be_seen():
    told = lines(UNCHANGED, noise=(NOISE,))

    assert told[2] == "Noise on Fake One: spread of the shift between two equal arms, block by block"
    assert told[3].split() == ["op", "and", "case", "spread", "allowed", "seen", "at", "95", "%", "kernel"]
    assert told[4].split() == ["relu", "rows=1", "0.4", "%", "1.5", "%", "2.0", "%", "12.0", "us"]
