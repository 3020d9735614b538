"""What a line of the log looks like, and what is never in one."""

from __future__ import annotations

import json
import logging
import sys
import threading

import pytest

from stream_calib.config_connections import TelemetrySection
from workers.logs import JsonFormatter, LibraryRepeats, TextFormatter, masked, set_up_logging


def record(message: str, *args: object, thread: str = "MainThread", **fields: object) -> logging.LogRecord:
    made = logging.getLogger("workers.test").makeRecord(
        "workers.test", logging.WARNING, "f.py", 1, message, args, None, extra=fields
    )
    made.threadName = thread
    return made


def test_json_lines_hold_the_role_and_the_fields_that_were_given() -> None:
    formatter = JsonFormatter(["calibrate"])
    line = json.loads(formatter.format(record("read %s", "again", thread="calibrate", topic="scores", partition=3)))
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "warning",
        "logger": "workers.test",
        "role": "calibrate",
        "topic": "scores",
        "partition": 3,
        "message": "read again",
    }


def test_a_json_line_is_one_line_and_has_no_other_fields() -> None:
    text = JsonFormatter(["calibrate"]).format(record("two\nlines \ud800", thread="Thread-7", event_id="secret"))
    assert "\n" not in text
    line = json.loads(text)
    assert line["message"] == "two\nlines \ud800"
    assert {"role", "event_id"}.isdisjoint(line)


def test_the_traceback_is_in_the_json_line() -> None:
    made = record("failed")
    try:
        raise RuntimeError("at redis://me:hunter2@host/0")
    except RuntimeError:
        made.exc_info = sys.exc_info()
    line = json.loads(JsonFormatter([]).format(made))
    assert "RuntimeError: at redis://***@host/0" in line["exception"]


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter([])])
def test_passwords_in_addresses_are_masked(formatter: logging.Formatter) -> None:
    text = formatter.format(record("no answer from %s", "rediss://user:hunter2@redis:6379/0"))
    assert "hunter2" not in text
    assert "rediss://***@redis:6379/0" in text


def test_what_is_no_password_stays() -> None:
    assert masked("http://host:80/a?b=c and me@example.com") == "http://host:80/a?b=c and me@example.com"


def test_everything_goes_to_one_handler_and_libraries_count_from_warnings_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_up_logging(TelemetrySection(log_format="json"), ["calibrate"])
    logging.getLogger("kafka.conn").info("noise")
    logging.getLogger("kafka.conn").warning("broker gone")
    logging.getLogger("uvicorn.error").info("started")
    logging.getLogger("workers.run").info("running")
    logging.getLogger("workers.run").debug("details")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [line["message"] for line in lines] == ["broker gone", "running"]


def test_a_library_that_repeats_itself_is_heard_once_a_minute() -> None:
    now = [1_000.0]
    repeats = LibraryRepeats(lambda: now[0])
    heard: list[tuple[float, str]] = []

    def say(logger: str, line: int, text: str) -> None:
        made = logging.LogRecord(logger, logging.ERROR, "manager.py", line, "%s", (text,), None)
        if repeats.filter(made):
            heard.append((now[0], made.getMessage()))

    for step in range(130):
        say("kafka.net.manager", 10, f"try {step}")
        now[0] += 1.0
    say("kafka.net.manager", 11, "another place")
    for step in range(3):
        say("stream_calib.librdkafka", 12, f"TIMEOUT of {step}")
        say("redis", 13, f"{step} tries")
        say("stream_calib.librdkafka_consumer", 12, "ours")
    assert heard == [
        (1_000.0, "try 0"),
        (1_060.0, "try 60 (and 59 like it since the last)"),
        (1_120.0, "try 120 (and 59 like it since the last)"),
        (1_130.0, "another place"),
        (1_130.0, "TIMEOUT of 0"),
        (1_130.0, "0 tries"),
        *[(1_130.0, "ours")] * 3,
    ]


def test_the_level_of_the_command_line_comes_first(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(TelemetrySection(log_level="info"), [], "error")
    logging.getLogger("workers.run").warning("left out")
    logging.getLogger("kafka").warning("left out")
    logging.getLogger("workers.run").error("said")
    written = capsys.readouterr().err
    assert written.endswith(" ERROR workers.run: said\n")
    assert "left out" not in written


def test_a_thread_of_a_library_that_fails_is_in_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    set_up_logging(TelemetrySection(log_format="json"), [])
    thread = threading.Thread(target=lambda: [][0], name="heartbeat")
    thread.start()
    thread.join()
    (line,) = (json.loads(text) for text in capsys.readouterr().err.splitlines())
    assert line["message"] == "thread heartbeat ended"
    assert "IndexError" in line["exception"]


@pytest.mark.parametrize(
    ("error", "shown"), [(ConnectionResetError(104, "reset by peer"), False), (KeyError("x"), True)]
)
def test_a_connection_that_a_library_lost_is_one_line(error: Exception, shown: bool) -> None:
    try:
        raise error
    except (ConnectionResetError, KeyError):
        caught = sys.exc_info()
    made = logging.LogRecord("kafka.net.transport", logging.ERROR, "transport.py", 1, "receiving", None, caught)
    assert LibraryRepeats().filter(made)
    text = TextFormatter().format(made)
    assert ("Traceback" in text) == shown
    assert str(error) in text
