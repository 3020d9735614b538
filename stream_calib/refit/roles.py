"""Which unit buckets may be used for what. Fixed: with rotating roles the gate would see rows of the current
snapshot."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stream_calib.events.identity import UNIT_BUCKETS

ROLES: dict[str, list[int]] = {
    "fit": list(range(12)),
    "audit": [12, 13],
    "certificate": [14, 15],
    "gate": list(range(16, 20)),
}


def _members(role: str) -> NDArray[np.bool_]:
    members = np.zeros(UNIT_BUCKETS, dtype=bool)
    members[ROLES[role]] = True
    return members


IS_FIT = _members("fit")
"""(20,) which buckets are for fitting."""
IS_GATE = _members("gate")
"""(20,) which buckets are for the gate."""
IS_AUDITED = _members("audit") | _members("certificate")
"""(20,) which buckets are for audits or the certificate."""


def overlap() -> int:
    """Number of buckets with more than one role; 0, reported with every refit."""
    return sum(len(buckets) for buckets in ROLES.values()) - len({b for buckets in ROLES.values() for b in buckets})
