"""The document of a backtest, its warnings, and its table in a terminal."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from stream_calib.backtest.comparison.assemble import assemble
from stream_calib.backtest.comparison.assemble_table import table_of
from stream_calib.backtest.document import BacktestDocument, Detection, decode_document
from stream_calib.backtest.history import CellHistory, PaneBlobs
from stream_calib.backtest.outcome import PolicyOutcome
from stream_calib.errors import BacktestError
from stream_calib.events.contracts import ModelKey
from tests.unit.backtest.policy_outcomes import FIRST_DAY, PANE_MS, PANES_A_DAY, alarm, outcome, refit

DAYS = 40
HISTORY = CellHistory(
    key=ModelKey("m", "1"),
    generation="g",
    pane_ms=PANE_MS,
    first_pane=FIRST_DAY * PANES_A_DAY,
    panes=[PaneBlobs(b"", b"")] * (DAYS * PANES_A_DAY),
    signatures={},
    start="exact",
    source="files made up",
    counts={"accepted": 4_000},
)
DETECTION = Detection("shift", 1, None, None, None, 0.5, 0.6)


def policy(name: str, loss: float = 50.0, days: int = DAYS) -> PolicyOutcome:
    return outcome(name, [loss] * days, refits=[refit(1), refit(2, "refused")], alarms=[alarm("psi", 3)])


def told(document: BacktestDocument, words: str) -> bool:
    return any(words in warning for warning in document.warnings)


def test_the_document_has_what_was_found() -> None:
    document = assemble(HISTORY, [policy("a"), policy("current", 50.5)], "current", [DETECTION], seed=3)
    assert (document.model, document.model_version, document.source, document.start) == (
        "m",
        "1",
        "files made up",
        "exact",
    )
    assert (document.first_pane, document.last_pane) == (FIRST_DAY * 24, (FIRST_DAY + DAYS) * 24 - 1)
    assert [line.policy for line in document.table] == ["a", "current"]
    assert document.raw.policy == "raw score"
    assert document.optimism is not None
    assert document.optimism.best == "a"
    assert document.detections == [DETECTION]
    assert document.warnings == []


def test_the_same_gives_the_same_bytes_and_comes_back_from_them() -> None:
    one, other = (assemble(HISTORY, [policy("current")], "current", seed=3) for _ in range(2))
    assert one.encode() == other.encode()
    assert decode_document(one.encode()) == one


def test_the_seed_is_that_of_the_draws() -> None:
    losses = 50 + np.random.default_rng(1).normal(size=DAYS)
    made = [assemble(HISTORY, [outcome("current", losses)], "current", seed=seed).table[0].log_loss for seed in (1, 2)]
    assert made[0].value == made[1].value
    assert made[0].low != made[1].low


@pytest.mark.parametrize(
    ("names", "current", "said"),
    [
        (["a", "current"], "curent", "there is no policy 'curent' to compare with; did you mean 'current'?"),
        (["a"], "current", "there is no policy 'current' to compare with; there are: a"),
        ([], "current", "there are: none"),
        (["a", "b", "b"], "a", "two policies are called 'b'"),
    ],
)
def test_policies_must_be_there_once(names: list[str], current: str, said: str) -> None:
    with pytest.raises(BacktestError) as raised:
        assemble(HISTORY, [policy(name) for name in names], current)
    assert said in str(raised.value)


def test_what_to_beware_of() -> None:
    cold = replace(HISTORY, start="cold")
    assert told(assemble(cold, [policy("current")], "current"), "The history starts cold: what was before 2011-01-26")
    assert told(assemble(HISTORY, [policy("current", days=29)], "current"), "Only 29 days with labels count")
    short = outcome("current", [50.0] * DAYS, scored_from_day=FIRST_DAY + DAYS)
    assert told(assemble(HISTORY, [short], "current"), "shorter than the warm up: labels end before 2011-03-07")
    selected = outcome("current", [50.0] * DAYS, unlabelled=100)
    assert told(assemble(HISTORY, [selected], "current"), "Only 50% of the scores have a label")
    outage = outcome("current", [50.0] * DAYS, alarms=[alarm("label_outage", day) for day in (4, 9)])
    assert told(assemble(HISTORY, [outage], "current"), "Labels were missing 2 times (alert label_outage)")
    open_end = replace(HISTORY, panes=[*HISTORY.panes, *[PaneBlobs(b"", None)] * (8 * PANES_A_DAY)])
    assert told(assemble(open_end, [policy("current")], "current"), "Labels of the last 8 days are not final yet")
    held = outcome("current", [50.0] * DAYS, refits=[refit(3, "held")])
    made = assemble(HISTORY, [held, *(outcome(name, [50.0] * DAYS) for name in "abcde")], "current")
    assert told(made, "Candidates of current were held, and nobody approves them in a backtest")
    assert told(made, "a, b, c and 2 more published no snapshot")


def test_many_policies_are_among_the_warnings() -> None:
    document = assemble(HISTORY, [policy("current"), *(policy(f"p{i}", 49.9) for i in range(10))], "current")
    assert told(document, "11 policies were tried")


def printed(document: BacktestDocument) -> list[str]:
    output = io.StringIO()
    Console(file=output, width=80).print(table_of(document))
    return output.getvalue().splitlines()


def test_the_table_within_80_columns() -> None:
    random = np.random.default_rng(2)
    losses = 50 + random.normal(size=DAYS)
    long = 'max_age=12h psi_threshold=.2 triggers=["psi","age"]'
    made = [
        outcome("current", losses, refits=[refit(day) for day in range(DAYS)], alarms=[alarm("psi", 3)]),
        outcome("[red]x", losses),
        outcome(long, losses - 0.5 + 0.2 * random.normal(size=DAYS)),
    ]
    lines = printed(assemble(HISTORY, made, "current"))
    text = "\n".join(lines)
    assert "…" not in text
    assert max(map(len, lines)) <= 80
    assert "[red]x" in text  # no markup
    for word in ("policy", "log-loss", "difference", "ECE %", "worst %", "alarms", "refits", "age h", "40/40"):
        assert word in text
    places = [
        next(i for i, line in enumerate(lines) if line.strip().startswith(name)) for name in ("raw", "curr", "#1 ")
    ]
    assert places == sorted(places)
    assert f"#1: {long}" in text


def test_a_long_table_says_how_much_is_left_out() -> None:
    document = assemble(
        HISTORY, [policy("current"), *(policy(f"p{i}", 51.0 + i) for i in reversed(range(30)))], "current"
    )
    lines = printed(document)
    assert "-0.00" not in "".join(lines)
    assert any("11 more policies are in the report" in line for line in lines)
    assert [line.split()[0] for line in lines if line.strip().startswith("p") and "/" in line] == [
        f"p{i}" for i in range(19)
    ]
