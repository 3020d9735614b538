"""Places at which a process can be made to die or to stand still, before and after each network call that changes
something.

For tests of what a crash leaves behind (tests/crash); off, which costs a look at a constant, unless the environment
variable STREAM_CALIB_FAULT asks for one of them when the process starts:

* ``redis.apply.after:7:kill``: kill -9 of the own process when it comes to this place for the 7th time;
* ``kafka.commit.before:1:stop``: it stands still there (SIGSTOP), until somebody sends SIGCONT;
* ``trace:FILE``: every place that is reached is noted in the file, once each.

"Before" is before anything is sent; "after" is when the answer is there. A call that fails has no "after".
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

from stream_calib.errors import ConfigurationError

VARIABLE = "STREAM_CALIB_FAULT"

CALLS = {
    "kafka.start": "a producer starts transactions; what its former self left open is ended",
    "kafka.fetch": "a member fetches, joins its group and shows that it is alive",
    "kafka.produce": "the records of a batch are handed to the client, which sends them in the background",
    "kafka.flush": "the brokers acknowledge records that are outside of a transaction",
    "kafka.offsets": "the positions of a batch are added to its transaction",
    "kafka.commit": "a transaction is committed",
    "kafka.abort": "a transaction is aborted",
    "kafka.positions": "positions of a group are committed without a transaction",
    "redis.embedded_append": "records and positions are appended to the embedded log",
    "redis.embedded_lease": "partitions of the embedded log are leased and the leases renewed",
    "redis.embedded_leave": "leases of the embedded log are given up",
    "redis.embedded_topic": "a topic of the embedded log is made",
    "redis.register": "shards learn of inputs, or begin anew after a wipe",
    "redis.apply": "a batch is brought to the shards",
    "redis.read_rows": "the closer reads rows of a pane",
    "redis.read_labels": "the closer reads the labels of a pane's rows",
    "redis.read_counters": "the closer reads a pane's counters",
    "redis.remove": "a pane is removed from a shard, a part at a time",
    "redis.read_entries": "entries of a list of a model key's state are read",
    "redis.commit": "any compare-and-set of a model key's state",
    "redis.lease": "a lease is taken or renewed",
    "redis.release": "a lease is given up",
    "signatures.write": "attribute values are put into the dictionary, before the rows that name them",
    "closer.close": "the closer commits scored cells",
    "closer.mature": "the closer commits matured cells",
    "closer.decide": "the closer commits decisions, and with them alerts into the outbox and a request",
    "snapshot.publish": "a snapshot's bytes, the pointer, the history and the settlement are written, in one commit",
    "snapshot.settle": "a refit's settlement without a publication is written",
    "snapshot.put_back": "a reader gives the state the bytes of a snapshot back that it has lost",
    "dead_letters.write": "monitor writes dead letters, before it passes their position",
    "alerts.send": "alerts of the outbox are written to their topic",
    "alerts.sent": "the outbox's position moves behind what was sent",
    "hooks.take": "a hook takes over what is new in an outbox",
    "hooks.tell": "it is put on record what a hook is about to be told",
    "hooks.send": "a message is brought to a hook",
    "hooks.told": "it is put on record what a hook has been told",
}
"""Name of each call -> what it does. `<name>.before` and `<name>.after` are the places."""

_SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}


def before(call: str) -> None:
    """The call, one of CALLS, is about to be made."""
    if _reached is not None:
        _reached(call + ".before")


def after(call: str) -> None:
    """The call has been answered."""
    if _reached is not None:
        _reached(call + ".after")


def parse(text: str) -> Callable[[str], None]:
    """What is done at each place, by a value of STREAM_CALIB_FAULT. Raises ConfigurationError where it is none."""
    name, _, rest = text.partition(":")
    if name == "trace" and rest:
        return _tracer(Path(rest))
    count, _, how = rest.partition(":")
    call, _, side = name.rpartition(".")
    if call not in CALLS or side not in ("before", "after") or how not in _SIGNALS or not count.isdecimal():
        raise ConfigurationError(
            f"{VARIABLE} = {text!r} is no fault: write <call>.before or <call>.after, a colon, the how manieth time,"
            f" a colon, kill or stop (or trace:FILE); the calls are {', '.join(CALLS)}"
        )
    return _fault(name, int(count), _SIGNALS[how])


def _fault(name: str, count: int, number: signal.Signals) -> Callable[[str], None]:
    left = count

    def reached(place: str) -> None:
        nonlocal left
        if place == name:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), number)

    return reached


def _tracer(file: Path) -> Callable[[str], None]:
    seen: set[str] = set()

    def reached(place: str) -> None:
        if place not in seen:
            seen.add(place)
            with file.open("a", encoding="utf-8") as stream:
                stream.write(place + "\n")

    return reached


_reached = parse(os.environ[VARIABLE]) if os.environ.get(VARIABLE) else None
