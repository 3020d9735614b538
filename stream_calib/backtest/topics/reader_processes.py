"""Partitions read and decoded by several processes, each some of them, while this one joins.

A client spends microseconds of one core on each record. Which batch comes next is the caller's choice, and how long it
is the partition's own matter, so the result is that of one process, whatever the time that each takes.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread

from stream_calib import errors
from stream_calib.backtest.child_process import ChildProcess
from stream_calib.backtest.topics.packed_batch import place_of, unpack_batch, unpack_error
from stream_calib.backtest.topics.partition_reading import PartitionPlan, ReadBatch, Readings
from stream_calib.backtest.topics.reader_process import ReadingJob, ask, work
from stream_calib.config import Config
from stream_calib.errors import HistoryError, StreamCalibError
from stream_calib.events.contracts import ModelKey
from stream_calib.transport.port import Log

_FEWEST_OFFSETS = 500_000
"""Fewer are read before processes have started."""
_MOST_PROCESSES = 6
"""A record takes a reader about five times as long as the join."""


def processes_for(plans: Sequence[PartitionPlan]) -> int:
    """How many processes are worth their start: one a core, or none."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if cores < 2 or sum(map(_offsets, plans)) < _FEWEST_OFFSETS:
        return 0
    return min(cores, len(plans), _MOST_PROCESSES)


class ReaderProcesses(Readings):
    """See Readings. The processes end with this object, and with this process, however it ends."""

    def __init__(
        self,
        opener: Callable[[], Log],
        config: Config,
        key: ModelKey,
        plans: Sequence[PartitionPlan],
        processes: int,
    ) -> None:
        self._readers: list[_Reader] = []
        self._reader_of: dict[int, _Reader] = {}
        try:
            for own in _shares(plans, processes):
                reader = _Reader(own)
                self._readers.append(reader)
                self._reader_of.update(dict.fromkeys(own, reader))
            for reader in self._readers:
                reader.begin(ReadingJob(opener, config, key, reader.plans))
        except BaseException:  # also Ctrl-C: none is left behind
            self.close()
            raise

    def next(self, place: int) -> ReadBatch:
        return self._reader_of[place].next(place)

    def close(self) -> None:
        for reader in self._readers:
            reader.terminate()
        for reader in self._readers:
            reader.close()
        self._readers = []


class _Reader:
    """One process, and what has come from it."""

    def __init__(self, plans: Mapping[int, PartitionPlan]) -> None:
        self.plans = plans
        self._come: dict[int, SimpleQueue[bytes | None]] = {place: SimpleQueue() for place in plans}
        self._told: bytes | None = None
        """What the process has told of its failure."""
        self._broken: Exception | None = None
        """Why what comes could not be taken."""
        self._process = ChildProcess(work)
        # Before the process, which would be left behind where no thread can be had.
        self._listener = Thread(target=self._listen, daemon=True)
        self._listener.start()
        self._process.start()

    def begin(self, job: ReadingJob) -> None:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has died: who asks for a batch is told
            self._process.pipe.send(job)

    def next(self, place: int) -> ReadBatch:
        """Waits for the plan's next batch. Raises what its process has failed of, each time it is asked."""
        come = self._come[place]
        packed = come.get()
        if packed is None:
            come.put(None)
            raise self._failure(str(self.plans[place].source))
        with suppress(OSError):  # it has ended: the batch behind the last one that came says why
            ask(self._process.pipe, place)
        return unpack_batch(packed)

    def terminate(self) -> None:
        self._process.terminate()

    def close(self) -> None:
        self._process.end()
        self._listener.join()
        self._process.pipe.close()

    def _listen(self) -> None:
        """Takes what comes at once, or the process would wait: it is no more than it was asked for."""
        try:
            while True:
                packed = self._process.pipe.recv_bytes()
                place = place_of(packed)
                if place is None:
                    self._told = packed
                else:
                    self._come[place].put(packed)
        except (EOFError, OSError):
            pass  # the process has ended
        except Exception as error:  # such as MemoryError: raised in `next`, where somebody waits
            self._broken = error
        finally:
            for come in self._come.values():
                come.put(None)

    def _failure(self, source: str) -> Exception:
        if self._broken is not None:
            failure = HistoryError(f"what the process that reads {source} has sent cannot be taken: {self._broken!r}")
            failure.__cause__ = self._broken
            return failure
        if self._told is None:
            return HistoryError(f"the process that reads {source} {self._process.end_text()}; is there memory enough?")
        name, message = unpack_error(self._told)
        kind = getattr(errors, name, None) if name else None
        if isinstance(kind, type) and issubclass(kind, StreamCalibError):
            return kind(message)
        return RuntimeError(f"the process that reads {source} has failed:\n{message}")


def _shares(plans: Sequence[PartitionPlan], processes: int) -> Iterator[Mapping[int, PartitionPlan]]:
    """Place -> plan of each process: about as many offsets of each topic, as records of a topic are alike."""
    shares: list[dict[int, PartitionPlan]] = [{} for _ in range(processes)]
    loads = [Counter[str]() for _ in shares]
    for place, plan in sorted(enumerate(plans), key=lambda one: -_offsets(one[1])):
        least = min(range(processes), key=lambda i: (loads[i][plan.source.topic], loads[i].total(), i))
        shares[least][place] = plan
        loads[least][plan.source.topic] += _offsets(plan)
    return (dict(sorted(share.items())) for share in shares if share)


def _offsets(plan: PartitionPlan) -> int:
    return plan.wanted.end - plan.wanted.start
