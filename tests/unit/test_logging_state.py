"""What commands that run in the tests' process set of logging is gone after the test."""

from __future__ import annotations

import logging
import threading
import warnings
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_calib.config_connections import TelemetrySection
from tests.logging_state import logging_as_before
from workers.cli import app
from workers.logs import set_up_logging


def test_warnings_are_heard_after_a_command_that_turns_them_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with logging_as_before():
        CliRunner().invoke(app, ["doctor", "--config", str(tmp_path / "none.toml")])
        logging.getLogger("workers.run").warning("not heard")
        assert logging.root.manager.disable == logging.WARNING
    logging.getLogger("workers.run").warning("heard")
    assert caplog.messages == ["heard"]


def test_what_a_process_sets_for_its_life_is_set_back() -> None:
    seen, kafka = logging.getLogger("stream_calib.seen"), logging.getLogger("kafka")
    kafka_level, root_level, handlers = kafka.level, logging.root.level, logging.root.handlers[:]
    hook, shown = threading.excepthook, warnings.showwarning
    with logging_as_before():
        set_up_logging(TelemetrySection(), [], "debug")
        seen.disabled, seen.propagate = True, False
        seen.addHandler(logging.NullHandler())
        logging.getLogger("stream_calib.first_seen_within").setLevel(logging.ERROR)
        assert (kafka.level, logging.root.level) == (logging.WARNING, logging.DEBUG)
        assert threading.excepthook is not hook
        assert warnings.showwarning is not shown
    assert (kafka.level, logging.root.level, logging.root.handlers) == (kafka_level, root_level, handlers)
    assert threading.excepthook is hook
    assert warnings.showwarning is shown
    assert (seen.disabled, seen.propagate, seen.handlers) == (False, True, [])
    assert logging.getLogger("stream_calib.first_seen_within").level == logging.NOTSET


def test_each_test_is_run_so(request: pytest.FixtureRequest) -> None:
    around = request.node.ihook.pytest_runtest_protocol.get_hookimpls()
    assert "tests.conftest" in {found.function.__module__ for found in around}
