"""The rounds of one start as a family: anyone who keeps the best of many tries would keep noise without a correction.

Round k of a start is judged by the share 1 / (k (k + 1)) of alpha. These shares sum up to 1 however many rounds follow,
and each round is timed anew, so alpha bounds the chance that any of them is kept though it is no better, whatever the
later ones were chosen by, and whether some ended in an error (alpha spending: Foster and Stine, J. R. Stat. Soc. B 70
(2008) 429; Tian and Ramdas, Stat. Methods Med. Res. 30 (2021) 976). The intervals of all rounds hold together by the
same shares (Bonferroni).
"""

from perfci.statistics.exact import CONFIDENCE


def weigh_round(place: int) -> int:
    """How many times a round's cases its family counts. place: 1, 2, ... among the tried rounds of its start."""
    return place * (place + 1)


def find_confidence(place: int) -> float:
    """Confidence of a round's intervals, so that those of all rounds hold together with 95 %."""
    return 1 - (1 - CONFIDENCE) / weigh_round(place)
