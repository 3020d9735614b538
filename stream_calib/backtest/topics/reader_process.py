"""What a process of `ReaderProcesses` does: it reads partitions, somewhat ahead of what is asked for."""

from __future__ import annotations

import logging
import os
import struct
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Thread

from stream_calib.backtest.topics.packed_batch import pack_batch, pack_error
from stream_calib.backtest.topics.partition_reading import PartitionPlan, partition_readings
from stream_calib.config import Config
from stream_calib.errors import StreamCalibError
from stream_calib.events.contracts import ModelKey
from stream_calib.garbage_collection import collect_seldom
from stream_calib.transport.port import Log

AHEAD = 2
"""Batches of each partition that are made before they are asked for."""
_PLACE = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class ReadingJob:
    """All that a process is given."""

    opener: Callable[[], Log]
    config: Config
    key: ModelKey
    plans: Mapping[int, PartitionPlan]
    """By their places among the plans of all processes."""


def ask(asked: Connection, place: int) -> None:
    """Asks the process at the other side for one batch more of a plan."""
    asked.send_bytes(_PLACE.pack(place))


def work(asked: Connection) -> None:
    """Takes a ReadingJob and reads until the other side is gone. What fails is the last thing to be told."""
    # What a client warns of comes to the caller as an error, if it comes to that.
    logging.disable(logging.WARNING)
    collect_seldom()
    try:
        job: ReadingJob = asked.recv()
    except (EOFError, OSError):
        return
    wanted: SimpleQueue[int] = SimpleQueue()
    for _ in range(AHEAD):
        for place in job.plans:
            wanted.put(place)
    Thread(target=_listen, args=(asked, wanted), daemon=True).start()
    try:
        with job.opener() as log:
            readings = dict(
                zip(job.plans, partition_readings(log, job.plans.values(), job.config, job.key), strict=True)
            )
            while True:
                place = wanted.get()
                if readings[place].unread:
                    _say(asked, pack_batch(place, readings[place].next()))
    except StreamCalibError as error:
        _say(asked, pack_error(type(error).__name__, str(error)))
    except Exception:  # a fault of the program, told in full
        _say(asked, pack_error("", traceback.format_exc()))


def _say(asked: Connection, packed: bytes) -> None:
    """Ends the process where the other side is gone."""
    try:
        asked.send_bytes(packed)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(0)


def _listen(asked: Connection, wanted: SimpleQueue[int]) -> None:
    """Ends the process at once where the other side is gone, whatever it waits for: it has nothing to put in order."""
    try:
        while True:
            (place,) = _PLACE.unpack(asked.recv_bytes())
            wanted.put(place)
    except (EOFError, OSError):
        os._exit(0)
