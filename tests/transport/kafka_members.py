"""Members of groups on a real Kafka: in processes of their own, and what they have written."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stream_calib.transport.port import Log, Outgoing, Record
from tests.kafka_services import fresh_name
from tests.transport.kafka_polling import poll_until, values

_ROOT = Path(__file__).parents[2]


class Process:
    """A running tests.transport.member_process that holds its records."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "tests.transport.member_process", *arguments]
        self.popen = subprocess.Popen(command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.answer() == "held"

    def tell(self, order: str) -> str:
        self.send(order)
        return self.answer()

    def send(self, order: str) -> None:
        assert self.popen.stdin is not None
        self.popen.stdin.write(f"{order}\n")
        self.popen.stdin.flush()

    def answer(self) -> str:
        assert self.popen.stdout is not None
        return self.popen.stdout.readline().strip()


@contextmanager
def process(*arguments: str) -> Iterator[Process]:
    """`arguments`: as tests.transport.member_process has them."""
    started = Process(*arguments)
    try:
        yield started
    finally:
        started.popen.kill()
        started.popen.wait()
        for pipe in (started.popen.stdin, started.popen.stdout):
            assert pipe is not None
            pipe.close()


def echo(records: list[Record], out: str) -> list[Outgoing]:
    return [Outgoing(out, r.key, r.value) for r in records]


def written(log: Log, out: str) -> list[bytes | None]:
    """Everything visible on the topic, once nothing of it is open or on its way any more."""
    log.produce([Outgoing(out, None, b"last")])
    with log.consumer(fresh_name("look"), [out], member="a") as consumer:
        records = poll_until(consumer, lambda _, records: bool(records) and records[-1].value == b"last")[1]
    return values(records)[:-1]
