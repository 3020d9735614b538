"""How refits ended, by what they were asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def refits_by_reason(refits: Sequence[tuple[str, str]]) -> tuple[list[str], list[tuple[str, list[int]]]]:
    """Of (reason, outcome) of each refit: the outcomes, and for each reason, the most frequent first, how often it had
    each of them."""
    outcomes = sorted({outcome for _, outcome in refits}, key=lambda o: (o not in ("published", "refused"), o))
    counts, totals = Counter(refits), Counter(reason for reason, _ in refits)
    ordered = sorted(totals, key=lambda reason: (-totals[reason], reason))
    return outcomes, [(reason, [counts[reason, outcome] for outcome in outcomes]) for reason in ordered]
