"""The fault points themselves: what the variable asks for happens, and the list is that of the code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from stream_calib import fault_points
from stream_calib.errors import ConfigurationError
from stream_calib.fault_points import CALLS, VARIABLE
from stream_calib.transport.port import Outgoing
from tests.crash.faults import NOT_ON_KAFKA, POINTS, SELDOM
from tests.crash.processes import _stands_still
from tests.integration.harness import deployment
from tests.unit.snapshot.test_follower import Deployment as Followed

_ROOT = Path(__file__).parents[2]
_DEADLINE_S = 30.0


@pytest.mark.parametrize(
    "text",
    [
        *("redis.apply.after", "redis.apply.after:1", "redis.apply.after:1:sleep", "redis.apply.after:x:kill"),
        *("redis.apply:1:kill", "redis.apply.within:1:kill", "redis.nothing.after:1:kill", "trace", "trace:", "x"),
    ],
)
def test_a_value_that_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{VARIABLE} = '{re.escape(text)}' is no fault: write .* redis.apply"):
        fault_points.parse(text)


def test_nothing_is_armed_here() -> None:
    assert os.environ.get(VARIABLE) is None
    assert fault_points._reached is None


_THREE_TIMES = """
from stream_calib import fault_points
for n in range(3):
    fault_points.before("redis.apply")
    fault_points.after("redis.lease")
    fault_points.after("redis.apply")
    print(n, flush=True)
"""


def _started(text: str) -> subprocess.Popen[str]:
    environ = {**os.environ, VARIABLE: text}
    return subprocess.Popen([sys.executable, "-c", _THREE_TIMES], env=environ, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize(
    ("text", "code", "printed"),
    [
        ("redis.apply.before:1:kill", -signal.SIGKILL, ""),
        ("redis.apply.after:2:kill", -signal.SIGKILL, "0\n"),
        ("redis.apply.after:4:kill", 0, "0\n1\n2\n"),
        ("redis.commit.after:1:kill", 0, "0\n1\n2\n"),
    ],
)
def test_a_process_kills_itself_the_nth_time(text: str, code: int, printed: str) -> None:
    process = _started(text)
    assert process.communicate(timeout=_DEADLINE_S)[0] == printed
    assert process.returncode == code


def test_a_process_stands_still_until_it_is_told_to_go_on() -> None:
    process = _started("redis.lease.after:2:stop")
    give_up = time.monotonic() + _DEADLINE_S
    while not _stands_still(process.pid):
        assert time.monotonic() < give_up
        time.sleep(0.01)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=_DEADLINE_S)[0] == "0\n1\n2\n"
    assert process.returncode == 0


def test_a_trace_has_every_place_once(tmp_path: Path) -> None:
    assert _started(f"trace:{tmp_path / 'seen'}").wait(_DEADLINE_S) == 0
    assert (tmp_path / "seen").read_text().split() == ["redis.apply.before", "redis.lease.after", "redis.apply.after"]


def test_every_call_in_the_code_is_listed_and_every_listed_one_is_there() -> None:
    """Scripts are named by their files, all others by the text at the place of the call."""
    code = "\n".join(
        path.read_text(encoding="utf-8")
        for folder in ("stream_calib", "workers")
        for path in (_ROOT / folder).rglob("*.py")
        if path.name != "fault_points.py"
    )
    scripts = re.findall(r"(?:LuaScript|_script)\([^)]*?\"(\w+)\.lua\"(?:, error_class=\w+)?\)", code)
    placed = {side: set(re.findall(rf"fault_points\.{side}\(\"([\w.]+)\"\)", code)) for side in ("before", "after")}
    assert placed["before"] == placed["after"]
    through_closer = set(re.findall(r"self\._commit\(\"([\w.]+)\"", code))
    assert {f"redis.{name}" for name in scripts} | placed["before"] | through_closer == set(CALLS)


def test_every_listed_call_is_met_by_random_scripts_but_those_that_are_named() -> None:
    assert {point.rpartition(".")[0] for point in POINTS} | NOT_ON_KAFKA | SELDOM == set(CALLS)


@pytest.mark.services
def test_the_calls_of_the_embedded_log_are_reached_by_a_real_run(tmp_path: Path) -> None:
    trace = tmp_path / "seen"
    with deployment(tmp_path / "run") as deployed:
        deployed.environ[VARIABLE] = f"trace:{trace}"
        with redis.Redis.from_url(deployed.server.url) as client:
            client.flushdb()  # without topics: the process makes them
        calibrate = deployed.start("calibrate")
        deployed.until(lambda: deployed.statuses("calibrate"), "calibrate to be there")
        deployed.write([Outgoing("scores", b"1", b'{"event_id": "1", "ts": 1704067200000, "score": 0.5}')])
        deployed.until_served()
        assert calibrate.terminate(30) == 0
    reached = set(trace.read_text().split())
    assert {f"{call}.{side}" for call in NOT_ON_KAFKA for side in ("before", "after")} <= reached


def test_a_reader_that_puts_bytes_back_comes_to_a_fault_point(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[str] = []
    followed = Followed()
    first, second = followed.publish(), followed.publish()
    assert followed.served() == second
    monkeypatch.setattr(fault_points, "_reached", reached.append)
    followed.lose_back_to(first)
    assert followed.served() == second
    assert reached == ["snapshot.put_back.before", "snapshot.put_back.after"]
