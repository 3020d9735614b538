from __future__ import annotations

import pytest

from stream_calib.backtest.policies.stepping import Stepper, serves_from
from stream_calib.config import Config
from stream_calib.errors import HistoryError
from stream_calib.snapshot.decision_log import Request, Settled
from tests.unit.backtest.made_up import history
from tests.unit.refit.world import FIRST_PANE, KEY, World, config


def stepped(panes: int, **refit: object) -> Stepper:
    made = Stepper(history(panes), config(**refit))
    for pane in range(FIRST_PANE, made.last_pane + 1):
        made.step(pane)
    return made


def test_the_lock_step_is_what_closer_and_refit_do() -> None:
    """Given the same cells, one by one as a closer commits them: the same decisions, alerts and snapshots."""
    live = World(config())
    live.run(100)
    replayed = stepped(100)

    assert replayed.log().tip == live.reader.read()[1].tip
    assert replayed.state.entries("outbox", 0) == live.state.entries("outbox", 0)
    versions = [move["version"] for move in live.store.history()]
    assert [one.version for one in replayed.publications()] == versions
    assert len(versions) > 2
    for version in versions:
        name = f"snapshot:{version}"
        assert replayed.state.blobs([name]) == live.state.blobs([name])


def test_every_pane_is_announced_before_it_is_decided_and_a_request_may_be_answered_in_its_place() -> None:
    announced: list[tuple[int, bool]] = []

    def before(pane: int) -> None:
        entries = made.log().entries
        is_open = made.log().open_request is not None
        announced.append((pane, is_open))
        if is_open:
            assert made.answer() is not None
            assert made.answer() is None  # nothing is open any more
            assert isinstance(made.log().entries[-2], Request)
            assert isinstance(made.log().entries[-1], Settled)
        else:
            assert made.log().entries == entries

    made = Stepper(history(40), config(), before_pane=before)
    for pane in range(FIRST_PANE, made.last_pane + 1):
        made.step(pane)

    assert [pane for pane, _ in announced] == list(range(FIRST_PANE, made.last_pane + 2))
    assert sum(is_open for _, is_open in announced) == len(made.reports) > 0
    assert made.log().tip == stepped(40).log().tip


def test_panes_are_stepped_in_order_and_as_far_as_labels_go() -> None:
    made = Stepper(history(10), config())
    with pytest.raises(ValueError, match=f"pane {FIRST_PANE} is to be decided next, not {FIRST_PANE + 1}"):
        made.step(FIRST_PANE + 1)
    assert made.last_pane == FIRST_PANE + 7
    for pane in range(FIRST_PANE, FIRST_PANE + 8):
        made.step(pane)
    with pytest.raises(HistoryError, match="the history ends with what decides"):
        made.step(FIRST_PANE + 8)


def test_cells_of_other_panes_are_refused() -> None:
    scores, windows = {"attributes": {"region": "r"}}, {"horizon": "2h", "pane": "2h"}
    other = Config.model_validate({"model": {"name": KEY.model}, "scores": scores, "windows": windows})
    with pytest.raises(HistoryError, match=r"windows\.pane"):
        Stepper(history(10), other)


def test_what_is_published_serves_once_its_labels_could_be_there() -> None:
    # Panes of an hour, labels up to two hours after the score and one hour late: pane 10 ends at 11, so all is known at
    # 14, when pane 14 begins.
    assert serves_from(10, config()) == 14
    made = stepped(60)
    first = made.publications()[0]
    assert first.serves_from == first.decided + 4
    assert made.publications(label_delay_panes=5)[0].serves_from == first.serves_from + 5
