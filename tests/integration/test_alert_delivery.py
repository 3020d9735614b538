"""The role alert with hooks: killed in the middle, with a receiver that hangs beside one that is well; and what people
do about alerts from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis import Redis
from typer.testing import CliRunner

from stream_calib.alerts.delivery_record import GIVEN_UP, GivenUp, owed_of
from stream_calib.alerts.model import Alert, AlertState, alert_of
from stream_calib.fault_points import VARIABLE
from stream_calib.windows.model_registry import deployment_scope
from stream_calib.windows.state_store import Commit
from tests.hook_messages import SIGNING_SECRET
from tests.hook_receiver import HookReceiver
from tests.integration.harness import Deployment, config_text, deployment
from workers.alert_listing import hook_rows
from workers.cli import app
from workers.deployment import connect_state, open_deployment_store

pytestmark = pytest.mark.services

_HOOK = """
[[alerts.hooks]]
name = "{name}"
kind = "webhook"
url = "file:{url}"
secrets = ["env:HOOK_SECRET"]
allow_private = true
gather = "0s"
timeout = "30s"
"""


class Told:
    """A deployment whose hook `ops` leads to a receiver that is well, and `stuck` to one that hangs."""

    def __init__(self, deployed: Deployment, receiver: HookReceiver) -> None:
        self.deployed, self._receiver = deployed, receiver
        self.raised: list[Alert] = []

    def raise_alert(self, state: AlertState, subject: str = "") -> None:
        number, key = len(self.raised), self.deployed.state.model_key
        made = alert_of(
            key, "psi", state, ("psi", number), subject=subject, pane=number, since_ms=0, diagnosis="the scores moved"
        )
        self.raised.append(made)
        self.deployed.state.store.commit(Commit(appends={"outbox": [made.encode()]}))

    def got(self) -> list[dict[str, Any]]:
        """The alerts that reached the receiver, in their order."""
        bodies = [json.loads(request.body) for request in self._receiver.received() if request.path == "/ok"]
        return [alert for body in bodies for alert in body["data"]["alerts"]]

    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self._receiver.received() if request.path == "/ok"]

    def until_told(self) -> None:
        ids = {alert.id for alert in self.raised}
        self.deployed.until(lambda: ids <= {alert["id"] for alert in self.got()}, "all to be told")

    def command(self, *arguments: str, code: int = 0) -> str:
        done = CliRunner().invoke(
            app,
            ["alerts", *arguments, "--config", str(self.deployed.config_file)],
            env={**self.deployed.environ, "COLUMNS": "200"},
        )
        assert done.exit_code == code, done.output
        return done.output


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Told]:
    hooks = ""
    with HookReceiver(tmp_path) as receiver:
        for name, path in (("ops", "/ok"), ("stuck", "/hang")):
            place = tmp_path / f"{name}.url"
            place.write_text(receiver.url(path))
            hooks += _HOOK.format(name=name, url=place)
        with deployment(tmp_path, text=config_text({}) + hooks) as deployed:
            deployed.environ["HOOK_SECRET"] = SIGNING_SECRET
            yield Told(deployed, receiver)


def test_alerts_reach_people_though_alert_is_killed_and_another_hook_hangs(told: Told) -> None:
    deployed = told.deployed
    for subject in ("a", "b"):
        told.raise_alert("open", subject)
    deployed.environ[VARIABLE] = "hooks.send.after:2:kill"  # the receivers have it, and that is not on record
    killed = deployed.start("alert")
    killed.expected = False
    told.until_told()
    told.raise_alert("close", "a")
    deployed.until(lambda: killed.process.poll() is not None, "it to be killed")
    with closing(Redis.from_url(deployed.server.url)) as client:
        client.delete(f"sc:{{{deployment_scope(deployed.config.log.group_prefix)}}}:lease:alert")
    told.raise_alert("open", "a")
    told.raise_alert("close", "b")
    del deployed.environ[VARIABLE]
    second = deployed.start("alert")
    told.until_told()
    # None invented, repeats are the same, and each alert's events come in their order.
    raised = {alert.id: alert.model_dump(mode="json") for alert in told.raised}
    assert {alert["id"] for alert in told.got()} == raised.keys()
    for subject in ("a", "b"):
        order = [alert.id for alert in told.raised if alert.dedup_key.endswith(f":{subject}")]
        seen = [alert["id"] for alert in told.got() if alert["dedup_key"].endswith(f":{subject}")]
        assert list(dict.fromkeys(seen)) == order
    # One that hangs is let go at the end, and its events are kept.
    assert second.terminate(20) == 0
    (row,) = hook_rows([deployed.state.store], ["stuck"], 0)
    assert row["waiting"] == len(told.raised)
    assert row["given_up"] == 0


def test_people_list_acknowledge_silence_and_try(told: Told) -> None:
    deployed = told.deployed
    told.raise_alert("open", "a")
    deployed.start("alert")
    told.until_told()
    (row,) = json.loads(told.command("list", "--json"))["alerts"]
    key = row["dedup_key"]
    assert (row["acknowledged"], row["silenced"]) == (None, None)
    told.command("ack", key, "--reason", "on it", "--actor", "ann")
    deployed.until(lambda: told.messages()[-1]["data"]["acknowledged_by"] == "ann", "the hook to be told")
    assert "acknowledged by ann" in " ".join(told.command("list").split())
    assert f"open are {key}" in " ".join(told.command("ack", "x", "--reason", "y", code=1).split())
    assert "silent until" in told.command(
        "silence", "--kind", "psi", "--for", "1h", "--reason", "test", "--actor", "bo"
    )
    silent = json.loads(told.command("list", "--json"))
    assert [s["actor"] for s in silent["silences"]] == ["bo"]
    assert silent["alerts"][0]["silenced"]["reason"] == "test"
    told.raise_alert("open", "b")
    told.raise_alert("close", "a")
    deployed.until(lambda: told.raised[-1].id in {alert["id"] for alert in told.got()}, "the end of a to be told")
    assert told.raised[-2].id not in {alert["id"] for alert in told.got()}
    assert "are told again" in told.command("unsilence", "1")
    assert "there is no silence 1; there are none" in told.command("unsilence", "1", code=1)
    told.until_told()
    events = json.loads(told.command("list", "--all", "--json"))["alerts"]
    assert [event["id"] for event in events] == [alert.id for alert in told.raised]
    assert "ops has nothing to be told again" in told.command("redeliver", "ops")
    assert "there is no hook x; the configuration has ops, stuck" in told.command("redeliver", "x", code=1)
    assert [row["given_up"] for row in json.loads(told.command("list", "--json"))["hooks"]] == [0, 0]
    assert "took the test alert" in told.command("test", "ops")
    assert told.messages()[-1]["type"] == "alert.test"
    assert "there is no hook x; the configuration has ops, stuck" in told.command("test", "x", code=1)
    said = " ".join(told.command("silence", "--model", "typo", "--for", "1h", "--reason", "test").split())
    assert "Nothing has the name typo by now, so this silences nothing yet; there are */" in said


def test_an_outbox_that_cannot_be_read_keeps_no_other_from_being_told_again(told: Told) -> None:
    told.raise_alert("open")
    given_up = msgspec.json.encode(GivenUp("ops", "rejected", "404", 0, told.raised[0].model_dump()))
    store = told.deployed.state.store
    store.commit(Commit(fields={"outbox_sent": "1", "hook:ops": "1:1"}, appends={GIVEN_UP: [given_up]}))
    config = told.deployed.config
    with closing(connect_state(config)) as client:
        first = open_deployment_store(client, config)
        first.commit(Commit(fields={"redelivered:ops": "x"}, appends={GIVEN_UP: [given_up]}))
    said = " ".join(told.command("redeliver", "ops", code=1).split())
    assert "1 event told to ops again" in said
    assert "the field redelivered:ops of an alert outbox holds 'x'" in said
    assert [owed.alert.id for owed in owed_of(store, "ops")] == [told.raised[0].id]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--reason", "x"), "say how long"),
        (("--reason", "x", "--for", "1h", "--until", "2040-01-01"), "say how long"),
        (("--reason", "x", "--for", "soon"), "is no duration"),
        (("--reason", "x", "--for", "0s"), "is over at once"),
        (("--reason", "x", "--until", "2020-01-01"), "is over"),
        (("--reason", " ", "--for", "1h"), "say why with --reason"),
        (("--reason", "x", "--for", "1h", "--kind", "psy"), "is no kind of alert"),
    ],
)
def test_a_silence_that_means_nothing_is_refused(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    file.write_text(config_text({}))
    done = CliRunner().invoke(app, ["alerts", "silence", *arguments, "--config", str(file)])
    assert done.exit_code == 1
    assert said in " ".join(done.output.split())
