"""Logging is of the process, and so are the settings that commands make of it: no test takes over another's."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def logging_as_before() -> Iterator[None]:
    """Whatever is set within, afterwards the log is again what it was: what is disabled, each logger's level, handlers
    and whether it hands on, and what becomes of warnings and of exceptions of threads.

    A logger that first appears within keeps what its library gave it, other than a level or being disabled.
    """
    disabled, hook = logging.root.manager.disable, threading.excepthook
    before = {logger: _settings(logger) for logger in _loggers()}
    try:
        yield
    finally:
        logging.disable(disabled)
        logging.captureWarnings(False)  # nothing captures them for longer than a test
        threading.excepthook = hook
        for logger in _loggers():
            was = before.get(logger, (logging.NOTSET, logger.propagate, False, logger.handlers))
            if _settings(logger) != was:  # setting a level empties the caches of all loggers
                level, logger.propagate, logger.disabled, logger.handlers[:] = was
                logger.setLevel(level)


def _loggers() -> list[logging.Logger]:
    named = logging.root.manager.loggerDict.values()
    return [logging.root, *(logger for logger in list(named) if isinstance(logger, logging.Logger))]


def _settings(logger: logging.Logger) -> tuple[int, bool, bool, list[logging.Handler]]:
    return logger.level, logger.propagate, logger.disabled, logger.handlers[:]
