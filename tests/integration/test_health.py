"""What a running process says of itself over HTTP and in its log: at work, with a server away, and hung."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from stream_calib.metrics import CATALOGUE
from stream_calib.windows.pane_record import decode_record
from tests.command_line import command_process
from tests.integration.harness import Deployment, RoleProcess, deployment
from tests.integration.stream import EventDay, as_written
from tests.kafka_broker import KafkaBroker

pytestmark = pytest.mark.services

ROLES = ("calibrate", "monitor", "refit", "alert")
LISTEN = {"http": {"listen": "127.0.0.1:0", "hung_after": "1s"}}


def address(deployed: Deployment, process: RoleProcess) -> str:
    """Where the process listens, as its log says."""
    found = deployed.until(
        lambda: re.search(r"readiness on ([\d.]+:\d+)", process.output.read_text()), "the HTTP server to be there"
    )
    return str(found[1])


def get(url: str) -> tuple[int, str]:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def faults(where: str, path: str) -> dict[str, str]:
    """Role -> what is wrong with it, as the answer says; {} where all is well."""
    status, text = get(f"http://{where}{path}")
    answer: dict[str, Any] = json.loads(text)
    assert status == (200 if answer["ok"] else 503)
    found: dict[str, str] = answer.get("roles", {})
    return found


def test_a_process_at_work_is_alive_and_ready_and_its_metrics_are_those_of_the_catalogue(tmp_path: Path) -> None:
    with deployment(tmp_path, LISTEN) as deployed:
        process = deployed.start(*ROLES)
        where = address(deployed, process)
        deployed.until(lambda: faults(where, "/readyz") == {}, "all roles to be ready")
        assert faults(where, "/healthz") == {}
        samples = [s for f in text_string_to_metric_families(get(f"http://{where}/metrics")[1]) for s in f.samples]
        ready = {s.labels["role"]: s.value for s in samples if s.name == "stream_calib_role_ready"}
        assert ready == dict.fromkeys(ROLES, 1.0)
        described = {m.name: set(m.labels) for m in CATALOGUE}
        for sample in samples:
            if sample.name.startswith("stream_calib_"):
                name = re.sub(r"_(bucket|count|sum|created)$", "", sample.name)
                name = name if name in described else f"{name}_total"
                assert set(sample.labels) - {"le"} == described[name], sample.name
        assert process.terminate() == 0


def test_what_the_metrics_say_is_what_is_on_the_log_and_in_the_state(month: list[EventDay], tmp_path: Path) -> None:
    with deployment(tmp_path, LISTEN) as deployed:
        process = deployed.start(*ROLES)
        where = address(deployed, process)
        deployed.until(lambda: faults(where, "/readyz") == {}, "all roles to be ready")
        days = month[:12]
        for day, records in zip(days, as_written(days), strict=True):
            deployed.log.produce(records + deployed.clocks(day.end_ms, end=day is days[-1]))
        deployed.until_served()
        deployed.until(lambda: deployed.lag("monitor", "labels") == deployed.lag("monitor", "blocks") == 0, "the join")
        deployed.until(lambda: _decided_all(deployed), "all panes to be decided")
        first, last = int(deployed.fields()["first_pane"] or 0), deployed.cursor("matured")
        version = deployed.fields()["current"] or ""

        def as_far() -> Samples | None:
            seen = Samples(where)
            decided = seen("panes_total", state="decided") == last + 1 - first
            return seen if decided and seen("snapshot_info", version=version) else None

        done: Samples = deployed.until(as_far, "the metrics to be as far")
        assert done("panes_total", state="closed") >= last + 1 - first
        blobs = deployed.state.store.blobs([f"pane:{pane}" for pane in range(first, last + 1)])
        panes = [decode_record(blob) for blob in blobs if blob is not None]
        assert len(panes) == last + 1 - first
        for outcome in ("accepted", "winners", "labels", "score_late", "label_late"):
            assert done("outcomes_total", outcome=outcome) == sum(r.counts.get(outcome, 0) for r in panes)
        labelled, positives = sum(r.labelled for r in panes), sum(r.positives for r in panes)
        assert done("outcomes_total", outcome="labelled") == done("served_labelled_total") == labelled > 5_000
        assert done("served_positives_total") == positives
        assert done("served_probability_total") == pytest.approx(positives, rel=0.5)
        assert 0.1 < done("served_log_loss_total") / labelled < 1
        scores = deployed.end("scores")
        assert done("records_read_total", role="calibrate", topic="scores") == scores
        assert done("batch_records_sum", role="calibrate") == scores
        assert done("records_read_total", role="monitor", topic="labels") == deployed.end("labels")
        assert done("scores_served_total") == deployed.end("calibrated")
        for role, stages in (
            ("calibrate", ("fetch", "decode", "apply", "encode", "commit")),
            ("monitor", ("fetch", "decode", "apply")),
        ):
            batches = done("batch_records_count", role=role)
            assert all(done("batch_stage_seconds_count", role=role, stage=stage) >= batches > 0 for stage in stages)
        batches = done("batch_records_count", role="calibrate")
        assert done("commits_total", role="calibrate", outcome="committed") == batches
        assert done("commits_total", role="calibrate", outcome="failed") == 0
        assert done("closer_lease") == 1
        assert done("pane_timestamp_seconds", state="matured") == (last + 1) * deployed.config.windows.pane_ms / 1000
        assert done("snapshot_sequence") == int(version.partition("-")[0]) >= 1
        assert done("snapshot_info", version=version) == done("snapshot_info") == 1, "one version a model"
        assert done("refits_total", outcome="published") >= 1
        assert done("refit_seconds_count") == done("refits_total")
        assert done("state_call_seconds_count", script="apply") > 0
        assert done("alert_outbox_length") == 0
        lags = [s.value for s in done.samples if s.name == "stream_calib_input_lag_records"]
        assert len(lags) >= 12


def _decided_all(deployed: Deployment) -> bool:
    fields = deployed.fields()
    return fields["first_pane"] is not None and not fields["open_request"] and fields["decided"] == fields["matured"]


class Samples:
    """What the process exports now."""

    def __init__(self, where: str) -> None:
        families = text_string_to_metric_families(get(f"http://{where}/metrics")[1])
        self.samples = [sample for family in families for sample in family.samples]

    def __call__(self, name: str, **labels: str) -> float:
        """Sum over the samples of that name that have the labels."""
        wanted = labels.items()
        return sum(s.value for s in self.samples if s.name == f"stream_calib_{name}" and wanted <= s.labels.items())


def test_without_an_address_nothing_listens(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed:
        process = deployed.start_all("refit")["refit"]
        assert "readiness on" not in process.output.read_text()
        assert "LISTEN" not in _tcp_states(process.process.pid)


def _tcp_states(pid: int) -> list[str]:
    """States of the TCP sockets that the process holds."""
    inodes = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        if match := re.fullmatch(r"socket:\[(\d+)\]", os.readlink(descriptor)):
            inodes.add(match[1])
    rows = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return ["LISTEN" if row[3] == "0A" else row[3] for row in rows if row[9] in inodes]


def test_a_role_that_hangs_in_a_client_fails_liveness_and_says_where(tmp_path: Path) -> None:
    with deployment(tmp_path, LISTEN) as deployed:
        process = deployed.start("monitor")
        where = address(deployed, process)
        deployed.until(lambda: faults(where, "/readyz") == {}, "monitor to be ready")
        os.kill(deployed.server.pid, signal.SIGSTOP)
        try:
            found = deployed.until(lambda: faults(where, "/healthz"), "liveness to fail")
            assert re.fullmatch(r"has not come round for \d+ s", found["monitor"])
            line = deployed.until(lambda: lines(process, "monitor hangs"), "the watchdog to say it")[0]
            assert re.search(r"in workers/role\.py:\d+ run > .*workers/monitor\.py:\d+ step > .*redis", line)
        finally:
            os.kill(deployed.server.pid, signal.SIGCONT)
        deployed.until(lambda: faults(where, "/healthz") == {}, "it to be alive again")
        deployed.until(lambda: lines(process, "monitor goes on"), "the watchdog to say that")
        assert len(lines(process, "monitor hangs")) == 1


def lines(process: RoleProcess, text: str) -> list[str]:
    return [line for line in process.output.read_text().splitlines() if text in line]


def test_a_server_that_is_away_is_no_reason_to_restart_but_one_not_to_be_ready(tmp_path: Path) -> None:
    with deployment(tmp_path, LISTEN | {"telemetry": {"log_format": "json"}}) as deployed:
        process = deployed.start("refit", "alert")
        where = deployed.until(
            lambda: next((json.loads(x)["message"] for x in lines(process, "readiness on")), None), "the address"
        ).rpartition(" ")[2]
        deployed.until(lambda: faults(where, "/readyz") == {}, "both to be ready")
        deployed.server.kill()
        away = deployed.until(lambda: len(found := faults(where, "/readyz")) == 2 and found, "both to wait")
        assert all(reason.startswith("waits: no answer from the Redis-compatible server") for reason in away.values())
        assert faults(where, "/healthz") == {}
        deployed.server.start()
        deployed.until(lambda: faults(where, "/readyz") == {}, "both to be ready again")
        deployed.until(lambda: len(lines(process, "goes on")) == 2, "both to say it")
        told = [json.loads(line) for line in process.output.read_text().splitlines()]
        pauses = [line for line in told if "pauses" in line["message"]]
        assert sorted(line["role"] for line in pauses) == ["alert", "refit"]
        assert {(line["level"], line["server"]) for line in pauses} == {("warning", "state")}


def test_brokers_that_do_not_answer_are_waited_for_and_hold_no_end_up(tmp_path: Path, own_kafka: KafkaBroker) -> None:
    """Paused, not killed: every call of the client runs into its timeout."""
    kafka = {"log": {"kind": "kafka", "bootstrap_servers": own_kafka.bootstrap}, "http": {"listen": "127.0.0.1:0"}}
    with deployment(tmp_path, kafka) as deployed:
        process = deployed.start("calibrate", "monitor")
        where = address(deployed, process)
        deployed.until(lambda: faults(where, "/readyz") == {}, "both to be ready")
        own_kafka.pause()
        try:
            away = deployed.until(lambda: len(found := faults(where, "/readyz")) == 2 and found, "both to wait")
            assert all("the brokers do not answer" in reason for reason in away.values())
            assert faults(where, "/healthz") == {}
            code = process.terminate(within_s=25)
        finally:
            own_kafka.resume()
        said = process.output.read_text()
        assert code == 0 or "did not end within 20 s; its unfinished batch is dropped. It is in" in said
        assert "stopping" in said


def test_the_command_line_names_the_address_and_one_that_is_taken_is_an_error(tmp_path: Path) -> None:
    with deployment(tmp_path) as deployed, socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        command = ("run", "--role", "refit", "--http", f"127.0.0.1:{port}", "--config", str(deployed.config_file))
        done = command_process(*command, environ=deployed.environ)
        assert done.returncode == 1
        assert f"http.listen = 127.0.0.1:{port}: cannot listen there" in done.stderr
        assert "Traceback" not in done.stderr
        as_json = deployed.write_config("json.toml", {"telemetry": {"log_format": "json"}})
        done = command_process(*command[:-1], str(as_json), environ=deployed.environ)
        last = json.loads(done.stderr.splitlines()[-1])
        assert (last["level"], last["message"].startswith("http.listen")) == ("error", True)
        done = command_process("run", "--role", "refit", "--http", "9400", "--config", str(deployed.config_file))
        assert done.returncode == 1
        assert 'http.listen = "9400"' in done.stderr
