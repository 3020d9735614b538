"""What people and other programs hand in: the configuration, the command line, requests over HTTP."""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from starlette.applications import Starlette
from typer.testing import CliRunner

from stream_calib.config_file import load_config, redacted
from stream_calib.config_values import mask_url
from stream_calib.errors import ConfigurationError
from stream_calib.live import LiveCalibrator
from stream_calib.snapshot.served_models import Serving
from tests.fuzz.target import Target, told
from tests.unit.events.events_for_tests import T0, config, strict_json
from workers.cli import app
from workers.serve_requests import CalibrateRoutes

_FOLDER = Path(tempfile.mkdtemp(prefix="stream-calib-fuzz-"))
_AWAY = f"unix://{_FOLDER}/nobody-listens"
_EXAMPLES = Path(__file__).parents[2]

# --- configuration


def configuration(value: bytes) -> None:
    file = _FOLDER / "fuzzed.toml"
    file.write_bytes(value)
    try:
        loaded = load_config(file, {})
    except ConfigurationError as error:
        told(error)
        return
    again = _FOLDER / "again.toml"
    again.write_text(redacted(loaded), encoding="utf-8")
    if all(url == mask_url(url) for url in (loaded.redis.url, loaded.log.url)):  # what may be a secret is not shown
        assert load_config(again, {}) == loaded


# --- command line

_NEVER_END = {"run", "serve", "demo", "--watch", "-w"}
"""Words with which a command goes on until it is told to stop, or starts servers."""

_CONFIG_FILE = _FOLDER / "good.toml"
_CONFIG_FILE.write_text(
    f'model.name = "m"\nwindows.horizon = "1d"\nredis = {{ url = "{_AWAY}", retries = 0 }}\nlog.url = "{_AWAY}"\n'
)


def command_line(value: bytes) -> None:
    """Words are separated by line breaks. Whatever they are there is no traceback, and where it fails a message."""
    words = [word for word in value.decode("utf-8", "surrogateescape").split("\n") if "\x00" not in word]
    if _NEVER_END & {word.partition("=")[0] for word in words} or any(word.startswith("/") for word in words):
        return
    words = [str(_CONFIG_FILE) if word == "GOOD" else word for word in words]
    here = Path.cwd()
    os.chdir(_FOLDER)
    try:
        result = CliRunner().invoke(app, words)
    finally:
        os.chdir(here)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code in (0, 1, 2), result.exit_code
    assert result.exit_code == 0 or result.output.strip(), "it failed without a word"
    assert "Traceback" not in result.output


_COMMANDS = """
--help
status
status --json
doctor --rate 1e3
doctor --rate nan
refit --reason x
config check
config show --json
config plan other.toml
config schema --markdown
topics check
topics create
snapshot list --model m
snapshot show 000001-89abcdef0123
snapshot diff 000001-89abcdef0123 000002-89abcdef0123
snapshot rollback 1 --reason x
snapshot pin
snapshot unpin --reason x
models list
models retire m 1 --yes
state list
state export file
state import file
state rebuild
state switch g
state drop g --yes
labels load file.jsonl --dry-run
fusion fit --from 2024-05-01
replay file.jsonl --into scores
replay --topic old --from 2024-05-01T00:00Z --into scores --speed 60
""".strip().splitlines()

# --- HTTP


class _Watch:
    """Every model is followed, and has no snapshot yet."""

    def follows(self, key: object) -> bool:
        return True

    def serving(self, key: object) -> tuple[Serving, int]:
        return Serving(None, "identity"), 0


def _application() -> Starlette:
    configured = config(
        model={"name_path": "m", "version": "1"},
        scores={"attributes": {"a": "a"}, "unit": "u", "keep_rate": "k"},
        http={"max_request_bytes": 100_000, "max_request_events": 100},
    )
    calibrator: Any = LiveCalibrator.__new__(LiveCalibrator)
    calibrator._config, calibrator._blocks, calibrator._watch = configured, None, _Watch()
    calibrator._reset()
    return Starlette(routes=CalibrateRoutes(configured, lambda: calibrator).routes)


_APPLICATION = _application()
_LOOP = asyncio.new_event_loop()


def request(value: bytes) -> None:
    """Answered with a result for each event, or refused with a reason; always in strict JSON."""
    status, body = _LOOP.run_until_complete(_asked(value))
    answer = strict_json(body)
    assert status in (200, 413, 422), (status, body[:200])
    if status == 200:
        asked = msgspec.json.decode(value)
        assert len(answer["results"]) == len(asked["events"])
        for result in answer["results"]:
            assert result["error"]["code"] if "error" in result else 0.0 <= result["calibrated"] <= 1.0
    else:
        assert answer["error"]


async def _asked(body: bytes) -> tuple[int, bytes]:
    got = SimpleNamespace(status=0, body=b"")
    scope = {"type": "http", "method": "POST", "path": "/v1/calibrate", "headers": [], "query_string": b""}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        got.status = message.get("status", got.status)
        got.body += message.get("body", b"")

    await _APPLICATION(scope, receive, send)
    return got.status, got.body


_EVENT = {"event_id": "e", "score": 0.5, "attributes": {"a": "x"}, "event_time_ms": T0, "unit": 7, "keep_rate": 0.5}
_REQUESTS = [
    {"events": [_EVENT], "model": "m"},
    {"events": [], "model": "m", "version": "1"},
    {"events": [_EVENT, {"score": 2}, {"event_id": 7, "score": None, "attributes": None}], "model": "m"},
]

TARGETS = [
    Target(
        "configuration",
        configuration,
        [
            _CONFIG_FILE.read_bytes(),
            (_EXAMPLES / "examples" / "flights" / "stream-calib.toml").read_bytes(),
            (_EXAMPLES / "deploy" / "compose" / "stream-calib.toml").read_bytes(),
        ],
        cost=3,
    ),
    Target(
        "command_line",
        command_line,
        [f"{words} --config GOOD".replace(" ", "\n").encode() for words in _COMMANDS],
        cost=3,
    ),
    Target("request", request, [json.dumps(body).encode() for body in _REQUESTS], cost=2),
]
