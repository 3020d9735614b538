"""What the service tells of itself, live: real roles over the embedded log and a real Redis, by a clock of the test."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

import pytest

from stream_calib.alerts.model import Alert
from stream_calib.config import Config
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.port import Outgoing
from tests.outbox import events
from workers.calibrate import Calibrate
from workers.deployment import connect_state, open_deployment_store, open_log, state_of
from workers.monitor import Monitor
from workers.refit import Refit
from workers.role import Role
from workers.topic_setup import create_topics

pytestmark = pytest.mark.services

KEY = ModelKey("m", "1")
STEP_MS = 10_000
SCORES_A_STEP = 20
CONDITIONS = {
    "no_scores": "40s",
    "watermark_stalled": "60s",
    "lag": "120s",
    "snapshot_age": "off",
    "rejected_share": 0.1,
    "rejected_window": "60s",
}


def configuration(redis_url: str) -> Config:
    time = {"path": "ts", "unit": "ms"}
    return Config.model_validate(
        {
            "model": {"name": KEY.model, "version": KEY.version},
            "scores": {"time": time, "attributes": {"group": "g"}},
            "labels": {"time": time},
            "log": {"kind": "embedded", "url": redis_url, "score_partitions": 2, "label_partitions": 2},
            "redis": {"url": redis_url},
            "serving": {"snapshot_poll": "5ms"},
            "windows": {
                "pane": "10s",
                "horizon": "20s",
                "score_lateness": "5s",
                "label_lateness": "5s",
                "max_clock_skew": "off",
                "idle_timeout": "off",
                "shards": 1,
            },
            "refit": {
                "level_cadence": "100s",
                "gate_window": "600s",
                "gate_margin": 10.0,
                "max_auc_drop": 1.0,
                "gate_min_rows": 10,
                "min_rows": 200,
                "min_positives": 10,
            },
            "drift": {"psi_window": "600s"},
            "alerts": {"conditions": CONDITIONS},
        }
    )


@dataclass
class Live:
    """Scores and labels of each ten seconds; some of it can be left out, or made worse."""

    config: Config
    roles: list[Role] = field(default_factory=list)
    now_ms: int = 1_700_000_000_000
    scores: bool = True
    poison: bool = False
    label_partitions: tuple[int, ...] = (0, 1)

    def __post_init__(self) -> None:
        self.client = connect_state(self.config)
        self.log = open_log(self.config)
        create_topics(self.log, self.config)
        self.state = state_of(self.client, self.config, KEY)
        self.deployment = open_deployment_store(self.client, self.config)
        self._random = random.Random(1)
        self._number = 0

    def clock_ms(self) -> int:
        return self.now_ms

    def until(self, condition: Callable[[], bool], what: str, at_most_steps: int = 60) -> None:
        """Time goes on, and the roles work, until it holds."""
        for _ in range(at_most_steps):
            if condition():
                return
            self.step()
        told = [f"{alert.dedup_key} {alert.state}" for alert in self.told()]
        raise AssertionError(f"waited {at_most_steps} steps for {what}; {told}")

    def step(self) -> None:
        self._write()
        self.now_ms += STEP_MS
        for role in self.roles:
            role.step()

    def _write(self) -> None:
        records = []
        for number in range(self._number, self._number + SCORES_A_STEP):
            ts = self.now_ms + self._random.randrange(STEP_MS - 5_000)
            score = {
                "event_id": f"e{number}",
                "ts": ts,
                "score": self._random.uniform(0.6, 0.95),
                "g": "ab"[number % 2],
            }
            if self.poison and number % 3 == 0:
                del score["score"]
            if self.scores:
                records.append(Outgoing("scores", None, json.dumps(score).encode(), (), number % 2))
            label = {"event_id": f"e{number}", "ts": ts + 1, "label": int(self._random.random() < 0.2)}
            partition = number % 2 if number % 2 in self.label_partitions else self.label_partitions[0]
            records.append(Outgoing("labels", None, json.dumps(label).encode(), (), partition))
        self._number += SCORES_A_STEP
        self.log.produce(records)

    def told(self) -> list[Alert]:
        return [*events(self.deployment), *events(self.state.store)]

    def states(self, kind: str) -> list[str]:
        return [alert.state for alert in self.told() if alert.kind == kind]

    def last(self, kind: str) -> Alert:
        return [alert for alert in self.told() if alert.kind == kind][-1]

    def until_told(self, kind: str, *states: str) -> Alert:
        """The last event of the kind, once these are all."""
        self.until(lambda: self.states(kind) == list(states), f"{kind} {states}")
        return self.last(kind)


@contextmanager
def live(redis_url: str) -> Iterator[Live]:
    with ExitStack() as stack:
        made = Live(configuration(redis_url))
        stack.enter_context(closing(made.client))
        stack.enter_context(closing(made.log))
        made.roles = [role(made.config, made.clock_ms) for role in (Calibrate, Monitor, Monitor, Refit)]
        for role in made.roles:
            role.open()
            stack.callback(role.close)
        yield made


def test_what_goes_wrong_is_told_once_and_that_it_is_over_too(redis_url: str) -> None:
    with live(redis_url) as one:
        one.until(lambda: one.state.snapshots.current() is not None, "a first snapshot")
        first = one.state.snapshots.current()
        assert {alert.kind for alert in one.told()} == {"refit_asked", "refit_published"}
        assert one.states("refit_asked") == ["open", "close"]

        # given 30 % of the records are broken, and a partition of labels that nobody writes to
        one.poison, one.label_partitions = True, (0,)
        opened = one.until_told("rejected_rate", "open")
        assert opened.evidence["topic"] == "scores"
        assert opened.evidence["reasons"].keys() == {"score_missing"}
        assert 0.1 <= opened.evidence["share"] <= 0.36
        opened = one.until_told("watermark_stalled", "open")
        assert opened.dedup_key.endswith(":watermark_stalled:labels")
        assert opened.evidence["clocks"].keys() == {"1"}
        assert opened.since_ms < one.now_ms - 60_000
        # given neither any more
        one.poison, one.label_partitions = False, (0, 1)
        one.until_told("watermark_stalled", "open", "close")
        one.until_told("rejected_rate", "open", "close")

        # given no scores, then some
        one.scores = False
        opened = one.until_told("no_scores", "open")
        assert (opened.severity, opened.model, opened.evidence["limit_ms"]) == ("critical", "m", 40_000)
        one.scores = True
        one.until_told("no_scores", "open", "close")

        # given somebody goes back, then a publication
        one.until(lambda: one.state.snapshots.current() != first, "another snapshot")
        assert first is not None
        one.state.snapshots.rollback(first, "ann", "it looked wrong")
        assert one.states("rolled_back") == ["open"]
        assert one.last("rolled_back").evidence["actor"] == "ann"
        one.until_told("rolled_back", "open", "close")

        # given a shard that has lost everything
        one.client.delete(*one.client.keys("sc:{m/1/0}:*"))
        assert one.until_told("redis_writes_lost", "open").evidence["topics"].keys() <= {"blocks", "labels"}

        told = one.told()
        assert len({alert.id for alert in told}) == len(told)
        for kind in ("rejected_rate", "watermark_stalled", "no_scores", "rolled_back"):
            assert one.states(kind) == ["open", "close"]
            assert len({alert.dedup_key for alert in told if alert.kind == kind}) == 1
        assert "lag" not in {alert.kind for alert in told}
