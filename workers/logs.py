"""The process's log: one line an event on standard error, as text or as JSON, of ours and of the libraries below.

Fields beside the message are given as `extra={"topic": ..}`; those of FIELDS are written to JSON. Passwords in
addresses are masked, whoever logs them.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime, timezone

from stream_calib.config_connections import TelemetrySection
from stream_calib.transport.librdkafka_settings import LOGGER as LIBRDKAFKA_LOGGER

FIELDS = ("model", "version", "outcome", "alert", "topic", "partition", "reason", "server")
"""Fields of a JSON line beside time, level, logger, role, message and exception. Never values of users' records."""

_LIBRARIES = ("kafka", LIBRDKAFKA_LOGGER.name, "redis", "uvicorn", "asyncio", "opentelemetry", "urllib3")
"""Their loggers."""
_LIBRARY_PREFIXES = tuple(f"{library}." for library in _LIBRARIES)
_LIBRARY_REPEATS_AFTER_S = 60.0
_PASSWORD_IN_ADDRESS = re.compile(r"(?<=://)[^/\s@'\"]*@")


def set_up_logging(telemetry: TelemetrySection, roles: Collection[str], level: str | None = None) -> None:
    """Everything that is logged in this process goes to standard error from now on.

    `roles`: names of threads that are named in JSON lines. `level` is taken in place of `telemetry.log_level`. What
    libraries log counts from warnings on, and once a minute.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(roles) if telemetry.log_format == "json" else TextFormatter())
    handler.addFilter(LibraryRepeats())
    least = logging.getLevelName((level or telemetry.log_level).upper())
    logging.basicConfig(level=least, handlers=[handler], force=True)
    logging.captureWarnings(True)
    threading.excepthook = _log_failure
    for library in _LIBRARIES:
        logging.getLogger(library).setLevel(max(least, logging.WARNING))


def _log_failure(failed: threading.ExceptHookArgs) -> None:
    """Of threads of libraries; those of ours keep what ended them."""
    name = failed.thread.name if failed.thread is not None else "unknown"
    logging.getLogger(__name__).error("thread %s ended", name, exc_info=failed.exc_value)


def masked(text: str) -> str:
    """The text without users and passwords in addresses."""
    return _PASSWORD_IN_ADDRESS.sub("***@", text)


class LibraryRepeats(logging.Filter):
    """Lets each line of a library's code speak once a minute: while a broker is away, clients try many times a second,
    and the roles say all that matters. A lost connection is one line, without a traceback."""

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._monotonic_s = monotonic_s
        self._spoken: dict[tuple[str, int, str], tuple[float, int]] = {}
        """Place in the code -> when it was let through, and how often not since. All that librdkafka logs comes from
        one place: there the first word, which says what it is about, counts too."""

    def filter(self, record: logging.LogRecord) -> bool:
        if not f"{record.name}.".startswith(_LIBRARY_PREFIXES):
            return True
        about = record.getMessage().partition(" ")[0] if record.name == LIBRDKAFKA_LOGGER.name else ""
        now, place = self._monotonic_s(), (record.pathname, record.lineno, about)
        spoken_s, left_out = self._spoken.get(place, (now - _LIBRARY_REPEATS_AFTER_S, 0))
        if now - spoken_s < _LIBRARY_REPEATS_AFTER_S:
            self._spoken[place] = (spoken_s, left_out + 1)
            return False
        self._spoken[place] = (now, 0)
        if record.exc_info and isinstance(lost := record.exc_info[1], ConnectionError):
            record.msg, record.args = f"{record.getMessage()}: {lost}", None
            record.exc_info = record.exc_text = None
        if left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} like it since the last)", None
        return True


class TextFormatter(logging.Formatter):
    """`time level logger: message`, then the traceback where there is one."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        return masked(super().format(record))


class JsonFormatter(logging.Formatter):
    """One object a line."""

    def __init__(self, roles: Collection[str]) -> None:
        super().__init__()
        self._roles = frozenset(roles)

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, timezone.utc).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
        }
        if record.threadName in self._roles:
            line["role"] = record.threadName
        line |= {field: record.__dict__[field] for field in FIELDS if field in record.__dict__}
        line["message"] = masked(record.getMessage())
        if record.exc_info:
            line["exception"] = masked(self.formatException(record.exc_info))
        return json.dumps(line, default=str)
