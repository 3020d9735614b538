"""A calibrate that is killed when a batch's outputs are written and its positions are not, with delivery at least once:
`python -m tests.integration.killed_between run --role calibrate ...`."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

from stream_calib.transport.kafka_writer import PlainWriter
from stream_calib.transport.port import Outgoing
from workers import cli

_BATCHES = 4
_write = PlainWriter.write
_written = 0


def _killed(self: PlainWriter, outputs: Sequence[Outgoing]) -> None:
    global _written
    _write(self, outputs)
    _written += bool(outputs)
    if _written == _BATCHES:
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    PlainWriter.write = _killed  # type: ignore[method-assign]  # in this process
    cli.main()
