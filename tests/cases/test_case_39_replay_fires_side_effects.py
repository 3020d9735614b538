"""A service whose offsets were reset sent thousands of messages to the outside a second time: its replay shared hooks,
state and group with what was live.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stream_calib.backtest.exact.verify import Verification
from tests.windows.monitors import A, B, Monitored, monitored
from workers.backtest_verify import replay_topics, verify_live

pytestmark = pytest.mark.services


def everything(m: Monitored) -> tuple[dict[bytes, bytes | None], dict[str, list[int]], list[dict[int, int]]]:
    """Every key of the state's server; how far each topic goes; the group's committed positions."""
    client = m.client
    keys = {name: client.dump(name) for name in sorted(client.scan_iter(count=1_000))}
    ends = {topic: [m.end(topic, p) for p in range(m.log.partitions(m.topic[topic]))] for topic in m.topic}
    groups = [dict(m.log.group_positions("monitor", m.topic[topic]) or {}) for topic in ("blocks", "labels")]
    return keys, ends, groups


def backtest(m: Monitored) -> list[Verification]:
    return [verify_live(m.log, m.config, key, m.state(key).store) for key in (A, B)]


def test_a_backtest_while_the_service_runs_leaves_no_trace(
    redis_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    called = tmp_path / "called"
    hook = {"name": "ops", "kind": "command", "command": ["touch", str(called)]}
    with monitored(redis_url, monkeypatch, alerts={"hooks": [hook]}) as m:
        m.clocks(0)
        m.traffic([A, B], 0, 120)
        m.clocks(130)
        m.start()
        m.until_matured(100, A, B)
        before = everything(m)

        first = backtest(m)
        histories = [replay_topics(m.log, m.config, A, m.state(A).store).history for _ in range(2)]

        assert everything(m) == before
        # The live service goes on, and the backtest of what it has done then is another one.
        assert [one.differences for one in first] == [[], []]
        assert all(one.matured - one.first_pane >= 9 for one in first)
        m.traffic([A, B], 130, 160, seed=2)
        m.clocks(190)
        m.until_matured(150, A, B)
        second, third = backtest(m), backtest(m)
    assert [one.differences for one in second] == [[], []]
    assert all(later.matured > earlier.matured for earlier, later in zip(first, second, strict=True))
    assert [one.encode() for one in second] == [one.encode() for one in third]
    assert histories[0].panes == histories[1].panes
    assert histories[0].counts == histories[1].counts
    assert not called.exists()
