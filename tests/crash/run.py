"""One run: a stream is written slice by slice, faults happen, and what is left in the end is found."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from stream_calib.alerts.delivery_record import field_of, owed_of
from stream_calib.alerts.outbox import LIST, waiting
from stream_calib.errors import StateUnavailableError, TransportError
from stream_calib.transport.embedded_server import EmbeddedServer
from stream_calib.transport.port import Outgoing
from tests.crash import stream
from tests.crash.brokers import Brokers
from tests.crash.faults import Fault, Script
from tests.crash.processes import SESSION_S, Processes
from tests.crash.state_servers import StateServers, state_servers
from tests.hook_messages import SIGNING_SECRET
from tests.hook_receiver import HookReceiver
from tests.integration.findings import Findings, find
from tests.integration.harness import TOPICS, Deployment, Overrides

_HELD_FOR_S = 2.0
_SLICE_WITHIN_S = 0.5
_DONE_WITHIN_S = 240.0
_LOOK_EVERY_S = 0.05
_NO_DEAD_LETTER_BYTES = 200
"""Too few for a dead letter, and enough for the marker of a transaction: without those a broker's coordinator hangs."""
_SHARDS = 3

_HOOK = "ops"

SETTINGS: Overrides = {
    "[alerts.hooks]": {
        "name": _HOOK,
        "kind": "webhook",
        "url": "env:HOOK_URL",
        "secrets": ["env:HOOK_SECRET"],
        "allow_private": True,
        "gather": "200ms",
    },
    "[alerts.routes]": {"hooks": [_HOOK], "severity": "info"},
    "log": {
        "session_timeout": f"{SESSION_S:g}s",
        "transaction_timeout": f"{SESSION_S - 1:g}s",
        "score_partitions": 3,
        "label_partitions": 2,
    },
    "serving": {"max_batch_records": 20},
    "windows": {
        "pane": f"{stream.PANE_MS}ms",
        "horizon": f"{stream.HORIZON_MS}ms",
        "score_lateness": f"{stream.SCORE_LATENESS_MS}ms",
        "label_lateness": f"{stream.LABEL_LATENESS_MS}ms",
        "shards": _SHARDS,
    },
    "refit": {
        "min_rows": 150,
        "min_positives": 20,
        "max_age": "80m",
        "cooldown": "40m",
        "min_new_labels": 100,
        "gate_window": "2h",
        "gate_min_rows": 30,
    },
    "drift": {"psi_window": "1h"},
}


class Run:
    """`perform` once."""

    def __init__(self, script: Script, folder: Path, brokers: Brokers) -> None:
        """`folder`: an empty one. `brokers`: as many as the script asks for."""
        self._script, self._folder, self._brokers = script, folder, brokers
        self._random = random.Random(script.seed)
        self._due: list[tuple[float, Callable[[], None]]] = []
        self.happened: list[Fault] = []
        """What happened: fault points that were not met are missing."""
        self.reached: set[str] = set()
        """Fault points that the processes came to."""
        self.told: list[dict[str, Any]] = []
        """The alerts that the receiver got, in their order."""

    def perform(self) -> tuple[Findings, Deployment]:
        """Raises AssertionError where a process ends by itself, or the work does not come to its end."""
        with ExitStack() as opened:
            self._state = opened.enter_context(state_servers(self._script.redis, self._folder / "state"))
            self._receiver = opened.enter_context(HookReceiver(self._folder))
            self._deployed = opened.enter_context(closing(self._deployment(self._state)))
            self._deployed.environ |= {"HOOK_URL": self._receiver.url("/ok"), "HOOK_SECRET": SIGNING_SECRET}
            topics = self._deployed.config.topics
            opened.callback(self._brokers.delete, [getattr(topics, name) for name in TOPICS])
            at_start = [fault for fault in self._script.faults if fault.what == "arm" and fault.step == 0]
            self._processes = Processes(self._deployed, self._config_of_roles(), at_start)
            later = [fault for fault in self._script.faults if fault not in at_start]
            for number, records in enumerate(stream.slices(self._script.stream)):
                self._write(records, number)
                for fault in later:
                    if fault.step == number:
                        self._begin(fault)
                self._go_on_for_a_while()
            self._write_end()
            self._finish()
            self.happened += self._processes.happened
            told = self._processes.tell_to_end()  # what is found does not change by it any more
            found = find(self._deployed)
            self._processes.ended(told)
            self.reached = self._processes.reached()
            for received in self._receiver.received():
                self.told += json.loads(received.body)["data"]["alerts"]
            return found, self._deployed

    def _deployment(self, state: StateServers) -> Deployment:
        """Its own log is through kafka-python, whatever the roles use: only they are on trial."""
        log = {**SETTINGS["log"], "bootstrap_servers": self._brokers.bootstrap}
        self._settings = {**SETTINGS, "log": log, "redis": state.settings}
        unused = EmbeddedServer(self._folder / "unused")  # the log is on Kafka; it is never started
        return Deployment(self._folder, unused, self._settings, state_url=state.url, kafka=self._brokers.first)

    def _config_of_roles(self) -> Path:
        log = {**self._settings["log"], "kind": self._script.client}
        return self._deployed.write_config("roles.toml", {**self._settings, "log": log})

    # --- writing

    def _write(self, records: list[Outgoing], number: int) -> None:
        deployed = self._deployed
        named = [record._replace(topic=getattr(deployed.config.topics, record.topic)) for record in records]
        self._patiently(lambda: deployed.log.produce(named + deployed.clocks(stream.slice_end_ms(number))))

    def _write_end(self) -> None:
        deployed = self._deployed
        self._patiently(lambda: deployed.log.produce(deployed.clocks(stream.slice_end_ms(stream.SLICES - 1), end=True)))

    def _patiently(self, do: Callable[[], object]) -> None:
        """Again and again while a server is away; what was written then may be there twice."""
        self._until(lambda: do() is None, "the log to take records")

    # --- faults

    def _begin(self, fault: Fault) -> None:
        processes, later = self._processes, self._later
        if fault.what == "arm":
            processes.leave(fault.slot, fault)
            return
        self.happened.append(fault)
        if fault.what == "kill":
            processes.kill(fault.slot)
        elif fault.what == "pause":
            processes.pause(fault.slot)
        elif fault.what == "leave":
            processes.leave(fault.slot)
        elif fault.what == "join":
            processes.join(fault.slot)
        elif fault.what == "dead_letters_away":
            topic = self._deployed.config.topics.dead_letters
            self._brokers.limit_values(topic, _NO_DEAD_LETTER_BYTES)
            later(lambda: self._brokers.limit_values(topic, None))
        elif fault.what == "receiver_kill":
            self._receiver.kill()
            later(self._receiver.start)
        elif fault.what == "broker_restart":
            self._brokers.restart()
        elif fault.what == "broker_lost":
            self._brokers.lose(self._script.seed % self._script.brokers)
        else:
            undo = self._state.begin(fault.what, self._random, self._keys())
            if undo is not None:
                later(undo)

    def _keys(self) -> list[str]:
        key = self._deployed.state.model_key
        return [f"sc:{{{key}}}:f", *(f"sc:{{{key}/{shard}}}:m" for shard in range(_SHARDS))]

    def _later(self, do: Callable[[], None]) -> None:
        self._due.append((time.monotonic() + _HELD_FOR_S, do))

    # --- waiting

    def _look(self) -> None:
        for due in [due for due in self._due if due[0] <= time.monotonic()]:
            self._due.remove(due)
            due[1]()
        self._processes.look()

    def _go_on_for_a_while(self) -> None:
        give_up = time.monotonic() + _SLICE_WITHIN_S
        while time.monotonic() < give_up:
            self._look()
            time.sleep(_LOOK_EVERY_S)

    def _until(self, condition: Callable[[], Any], what: str) -> None:
        give_up, last = time.monotonic() + _DONE_WITHIN_S, "it did not hold"
        while True:
            self._look()
            try:
                if condition():
                    return
            except (StateUnavailableError, TransportError) as error:
                last = str(error)
            if time.monotonic() > give_up:
                raise AssertionError(f"waited for {what} ({last}):\n{self._processes.last_words()}")
            time.sleep(_LOOK_EVERY_S)

    def _finish(self) -> None:
        deployed, last = self._deployed, last_pane(self._script.stream)
        self._until(lambda: not self._due, "the servers to be mended")
        self._until(lambda: deployed.lag("calibrate", deployed.config.topics.scores) == 0, "calibrate to serve all")
        self._until(
            lambda: deployed.cursor("decided") == last and not deployed.fields()["open_request"],
            f"the last pane {last} to be decided",
        )
        self._until(lambda: not waiting(deployed.state.store), "all alerts to be delivered")
        self._until(self._all_told, "the hook to be told of all alerts")

    def _all_told(self) -> bool:
        store, field = self._deployed.state.store, field_of(_HOOK)
        position = (store.read([field])[field] or "").partition(":")[0]
        return position == str(store.length(LIST)) and not owed_of(store, _HOOK)


def last_pane(seed: int) -> int:
    """The last pane with a score that counts."""
    times = (
        int(json.loads(record.value)["ts"])
        for some in stream.slices(seed)
        for record in some
        if record.topic == "scores" and record.value is not None
    )
    return max(times) // stream.PANE_MS
