"""Why one event is served what it is served: every part of the map that moved its probability, and by how much.

The steps follow the definition of the map (`MapParts`), with the numbers that the served table is made of. Each begins
where the one before ended and the last ends at the very probability that is served, so nothing is left over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from numbers import Real
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from stream_calib.calibration.grid import locate, log_odds
from stream_calib.calibration.groups import Signature
from stream_calib.calibration.maps.base_map import EDGES
from stream_calib.calibration.maps.parts import MapParts
from stream_calib.calibration.maps.signature_tables import SignatureTables
from stream_calib.calibration.text_table import text_table
from stream_calib.errors import FitError, NonFiniteInputError, ScoreRangeError

StepKind = Literal["base", "offset", "slope", "level", "patch", "kept_increasing"]

_ROUNDING = 1e-14


@dataclass(frozen=True, slots=True)
class ExplanationStep:
    """What one part of the map did to the event."""

    kind: StepKind
    group: str | None
    """As `carrier=UA & origin=EWR`; None of the base map, the level, and where it is kept increasing."""
    log_odds: float | None
    """What an offset, a slope (at the event's score) or the level added; of the base map its value; else None."""
    before: float
    """Probability; of the base map the raw score."""
    after: float

    @property
    def change(self) -> float:
        """In probability."""
        return self.after - self.before


@dataclass(frozen=True, slots=True)
class Explanation:
    """`steps`: the base map, then what moved the event, in the order of application."""

    score: float
    signature: Signature
    steps: tuple[ExplanationStep, ...]

    @property
    def probability(self) -> float:
        """What is served."""
        return self.steps[-1].after

    def __str__(self) -> str:
        """A table for people."""
        body = [
            (
                _title(step),
                "" if step.log_odds is None else f"{step.log_odds:+.4f}",
                "" if step.kind == "base" else f"{step.change:+.6f}",
                f"{step.after:.6f}",
            )
            for step in self.steps
        ]
        lines = [f"raw score {self.score:.6g} is served as {self.probability:.6g}"]
        return "\n".join(lines + text_table(("", "log-odds", "change", "probability"), body))


def explain(parts: MapParts, score: float, signature: Signature) -> Explanation:
    """Explains one event. `score`: raw, in [0, 1]; `signature`: one value for each attribute of the map, derived ones
    at the end.

    A step's probability is that of the map with the parts up to this one, before projections: what one changes is a
    step of its own, `kept_increasing`. What leaves the event where it is, as a group without a number, is left out.
    Raises NonFiniteInputError, ScoreRangeError; FitError for a score that is no number or values that are no text.
    """
    if not isinstance(score, Real):
        raise FitError(f"the score is {score!r}; a score is one number")
    if not all(isinstance(value, str) for value in signature):
        raise FitError(f"the event's values are {signature!r}; values are text, turn others into text")
    if not np.isfinite(score):
        raise NonFiniteInputError(f"the score is {score}; a score is a finite number")
    if not 0 <= score <= 1:
        raise ScoreRangeError(f"the score {score} lies outside [0, 1]; give a probability")
    at = np.array([score], dtype=np.float64)
    grid_bin, position = locate(at)
    tables = SignatureTables(parts)
    x = float(log_odds(at)[0])

    steps: list[ExplanationStep] = []
    before = score
    for kind, group, added, table in _stages(tables, signature, x):
        lower, upper = table[0, int(grid_bin[0])].tolist()
        # As `ServedMap.apply`, to the bit.
        after = min(lower + float(position[0]) * (upper - lower), upper)
        if kind == "base":
            added = float(np.log(after) - np.log1p(-after))
        if kind == "kept_increasing" and abs(after - before) <= _ROUNDING:
            # The sums of the table are taken in another order.
            steps[-1] = replace(steps[-1], after=after)
        elif kind in ("base", "offset", "slope", "level") or after != before:
            steps.append(ExplanationStep(kind, group, added, before, after))
        before = after
    return Explanation(score, signature, tuple(steps))


def _stages(
    tables: SignatureTables, signature: Signature, x: float
) -> Iterator[tuple[StepKind, str | None, float | None, NDArray[np.float64]]]:
    """Kind, group, log-odds added at x, and the signature's table (1, 402, 2) after it; the last is the served one."""
    parts = tables.parts
    total = tables.start[None]
    yield "base", None, None, tables.unprojected_start(total)
    for family in parts.families:
        key = family.rule.group(signature)
        if key is None:
            continue
        if offset := family.offsets.get(key, 0.0):
            total = total + offset
            yield "offset", family.rule.group_name(key), offset, tables.unprojected_start(total)
        if slope := family.slopes.get(key, 0.0):
            total = total + slope * (EDGES - parts.slope_centre)
            added = slope * (x - parts.slope_centre)
            yield "slope", family.rule.group_name(key), added, tables.unprojected_start(total)
    if parts.level:
        yield "level", None, parts.level, tables.unprojected_start(total + parts.level)
    table = tables.projected_start(tables.log_odds([signature]))
    yield "kept_increasing", None, None, table
    for number, patches in enumerate(parts.rounds):
        row = tables.rows_of_round(number, [signature])
        key = patches.rule.group(signature)
        if key is not None and row[0]:
            shifted = tables.patched(table, number, row)
            yield "patch", patches.rule.group_name(key), None, tables.strict(shifted)
            table = tables.increasing(shifted)
            yield "kept_increasing", None, None, table


def _title(step: ExplanationStep) -> str:
    if step.kind == "base":
        return "base map"
    title = step.kind.replace("_", " ")
    return title if step.group is None else f"{step.kind} {step.group}"
