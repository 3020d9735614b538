"""What may happen in a run, as a script: a list of events that a seed makes, and that can be written down, read and
shortened.

An event happens after the slice of its step has been written. `arm`: the process in the slot is ended in good order,
and one that will meet a fault point is started in its place; at the first step it is there from the start.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from stream_calib.fault_points import CALLS
from tests.crash.stream import SLICES

SLOTS: tuple[tuple[str, ...], ...] = (("calibrate",), ("monitor",), ("calibrate", "monitor"), ("refit", "alert"))
"""The processes of a run, by their roles."""

ServerKind = Literal["single", "replica", "cluster"]
ClientKind = Literal["kafka", "librdkafka"]

_OFTEN: dict[str, tuple[str, int]] = {
    "kafka.start": ("calibrate", 1),
    "kafka.fetch": ("calibrate", 30),
    "kafka.produce": ("calibrate", 12),
    "kafka.flush": ("monitor", 2),
    "kafka.offsets": ("calibrate", 12),
    "kafka.commit": ("calibrate", 12),
    "kafka.positions": ("monitor", 3),
    "redis.register": ("monitor", 1),
    "redis.apply": ("monitor", 30),
    "redis.read_rows": ("monitor", 15),
    "redis.read_labels": ("monitor", 8),
    "redis.read_counters": ("monitor", 8),
    "redis.remove": ("monitor", 15),
    "redis.read_entries": ("alert", 5),
    "redis.commit": ("monitor", 10),
    "redis.lease": ("refit", 4),
    "redis.release": ("monitor", 1),
    "signatures.write": ("monitor", 1),
    "closer.close": ("monitor", 4),
    "closer.mature": ("monitor", 4),
    "closer.decide": ("monitor", 4),
    "snapshot.publish": ("refit", 1),
    "snapshot.settle": ("refit", 1),
    "dead_letters.write": ("monitor", 2),
    "alerts.send": ("alert", 1),
    "alerts.sent": ("alert", 1),
    "hooks.take": ("alert", 1),
    "hooks.tell": ("alert", 1),
    "hooks.send": ("alert", 1),
    "hooks.told": ("alert", 1),
}
"""Call -> the role that makes it, and how often it is sure to be made in a run."""

_BY_LEASE = ("closer.", "redis.read_", "redis.remove")
"""Calls that only one process of their role makes: whichever has the lease."""

POINTS = [f"{call}.{side}" for call in _OFTEN for side in ("before", "after")]
NOT_ON_KAFKA = {call for call in CALLS if call.startswith("redis.embedded_")}
SELDOM = {"kafka.abort", "snapshot.put_back"}
"""Calls that only other faults bring about; the random kills meet them."""

AROUND = (
    *("kill", "pause", "leave", "join", "receiver_kill"),
    *("redis_kill", "redis_back", "redis_full", "disk_full", "dead_letters_away"),
)
_OF_SERVERS: dict[ServerKind, tuple[str, ...]] = {
    "single": AROUND,
    "replica": ("kill", "pause", "leave", "receiver_kill", "fail_over", "primary_kill"),
    "cluster": ("kill", "pause", "leave", "receiver_kill", "fail_over", "primary_kill", "move_slots"),
}
_STREAMS = 4
_HOLD = 2
"""Steps for which a server is kept from working."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One event of a script."""

    step: int
    what: str
    slot: int = 0
    """Of the process that it happens to."""
    point: str = ""
    count: int = 1
    how: str = "kill"

    @property
    def name(self) -> str:
        """As tables name it."""
        return self.point if self.what == "arm" else self.what


@dataclass(frozen=True, slots=True)
class Script:
    """A whole run: the stream by its seed, what it runs on, and what happens."""

    seed: int
    stream: int
    """Seed of the stream. There are few of them, so that what was decided can be compared between runs."""
    redis: ServerKind
    brokers: int
    client: ClientKind
    faults: tuple[Fault, ...]

    def text(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def read(path: Path) -> Script:
        found = json.loads(path.read_text(encoding="utf-8"))
        faults = tuple(Fault(**fault) for fault in found.pop("faults"))
        return Script(**found, faults=faults)

    def with_faults(self, faults: Sequence[Fault]) -> Script:
        return replace(self, faults=tuple(faults))


def random_script(seed: int, redis: ServerKind, brokers: int, client: ClientKind) -> Script:
    """Two fault points, so that runs with neighbouring seeds go through all of them, and up to three other faults."""
    random_ = random.Random(seed)
    faults = [fault for n in range(2) for fault in _armed(POINTS[(2 * seed + n) % len(POINTS)], random_)]
    kinds = _OF_SERVERS[redis]
    others = [kinds[seed % len(kinds)], *random_.choices(kinds, k=random_.randrange(3))]
    faults += [_around(what, random_) for what in others]
    if brokers > 1:
        faults.append(Fault(random_.randrange(4, SLICES // 2), "broker_lost"))
    elif seed % 10 == 0:
        faults.append(Fault(random_.randrange(2, SLICES - 2), "broker_restart"))
    return Script(seed, seed % _STREAMS, redis, brokers, client, tuple(sorted(faults, key=lambda fault: fault.step)))


def _armed(point: str, random_: random.Random) -> list[Fault]:
    role, most = _OFTEN[point.rpartition(".")[0]]
    slots = [n for n, roles in enumerate(SLOTS) if role in roles]
    step = random_.choice([0, 0, random_.randrange(1, SLICES // 2)])
    how = "stop" if random_.random() < 0.25 else "kill"
    count = random_.randint(1, most)
    chosen = slots if point.startswith(_BY_LEASE) else [random_.choice(slots)]
    faults = [Fault(step, "arm", slot, point, count, how) for slot in chosen]
    if point.startswith("redis.release"):  # it comes there when it is ended
        faults += [Fault(step + _HOLD, "leave", slot) for slot in chosen]
    return faults


def _around(what: str, random_: random.Random) -> Fault:
    last = SLICES - 1 - _HOLD
    return Fault(random_.randrange(1, last), what, random_.randrange(len(SLOTS)))
