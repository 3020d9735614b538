"""History as cells: the packed cells of consecutive panes with their dictionary, which policies are run over.

Whatever the source (a replay of topics, rows of files, a warehouse, a state), it comes to this. A policy costs cells
only.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from stream_calib.errors import HistoryError, StateError
from stream_calib.events.contracts import ModelKey
from stream_calib.snapshot.canonical import canonical_json
from stream_calib.windows.cells import MaturedCells, ScoredCells
from stream_calib.windows.kept_panes import FIELD as KEPT
from stream_calib.windows.kept_panes import kept_of
from stream_calib.windows.memory_state import MemoryState
from stream_calib.windows.pane_record import PaneNames, chained
from stream_calib.windows.state_store import Commit, StateStore

_PANES_A_READ = 256
Start: TypeAlias = Literal["exact", "cold"]
"""`exact`: as live, from the generation's first pane or a state; `cold`: what was before the first pane
is not known."""


class PaneBlobs(NamedTuple):
    """One pane, packed as in the state."""

    scored: bytes
    """ScoredCells.pack()"""
    matured: bytes | None
    """MaturedCells.pack(); None where the history ends before the pane's labels are final. Then all later panes have
    none."""


@dataclass(frozen=True, slots=True)
class CellHistory:
    """Consecutive panes of one model key; none is left out, an empty pane has empty cells."""

    key: ModelKey
    generation: str
    """Hash of the semantic configuration that the cells were counted under (config_identity.semantic_hash)."""
    pane_ms: int
    first_pane: int
    panes: Sequence[PaneBlobs]
    """The first is `first_pane`."""
    signatures: Mapping[int, tuple[str, ...]]
    """Signature hash -> attribute values, of every signature in the cells."""
    start: Start
    source: str
    """Where the cells come from, in words for people: `files scores.parquet, labels.csv`."""
    counts: Mapping[str, int]
    """Outcome classes and rejects by reason, over the whole history: `accepted`, `score_late`, `labels`, ..."""
    label_delays: Mapping[int, int] = field(default_factory=dict)
    """Pane -> so many panes later than horizon and lateness say are its labels final; no pane is decided before the one
    in front of it is. Injected only."""

    @property
    def last_pane(self) -> int:
        """The last one whose scores are counted."""
        return self.first_pane + len(self.panes) - 1

    @property
    def last_matured(self) -> int:
        """The last one whose labels are final; `first_pane - 1` where there is none."""
        return self.first_pane - 1 + sum(pane.matured is not None for pane in self.panes)

    def content_sha256(self) -> str:
        """Hash of what policies depend on: model key, generation, panes and cells; 64 hexadecimal digits."""
        made = hashlib.sha256(
            canonical_json(
                [
                    *self.key,
                    self.generation,
                    self.pane_ms,
                    self.first_pane,
                    len(self.panes),
                    sorted(self.label_delays.items()),
                ]
            )
        )
        for pane in self.panes:
            for blob in pane:
                made.update(b"-" if blob is None else len(blob).to_bytes(8, "big") + blob)
        for signature, values in sorted(self.signatures.items()):
            made.update(canonical_json([signature, *values]))
        return made.hexdigest()

    def label_delay(self, pane: int) -> int:
        """So many panes later the pane can be decided than horizon and lateness say, see `label_delays`."""
        ends = (delayed + by for delayed, by in self.label_delays.items() if delayed <= pane)
        return max(max(ends, default=pane) - pane, 0)

    def scored(self, pane: int) -> ScoredCells:
        return ScoredCells.unpack(self.panes[pane - self.first_pane].scored)

    def matured(self, pane: int) -> MaturedCells:
        """Raises StateError where the pane's labels are not final."""
        blob = self.panes[pane - self.first_pane].matured
        if blob is None:
            raise StateError(
                f"the labels of pane {pane} are not final in this history, it matures up to {self.last_matured}"
            )
        return MaturedCells.unpack(blob)

    def state(self) -> MemoryState:
        """A new state in memory which has these cells closed and matured and nothing decided."""
        made = MemoryState()
        made.put_signatures(self.signatures, self.last_pane * self.pane_ms)
        blobs: dict[str, bytes] = {}
        chain = ""
        for pane, one in enumerate(self.panes, self.first_pane):
            blobs[PaneNames.of(pane).scored] = one.scored
            if one.matured is not None:
                blobs[PaneNames.of(pane).matured] = one.matured
                chain = chained(chain, one.matured)
        fields = {
            "first_pane": str(self.first_pane),
            "closed": str(self.last_pane),
            "matured": str(self.last_matured),
            "decided": str(self.first_pane - 1),
            "matured_chain": chain,
        }
        made.commit(Commit(fields=fields, blobs=blobs))
        return made

    @classmethod
    def of_state(
        cls, store: StateStore, key: ModelKey, generation: str, pane_ms: int, source: str, counts: Mapping[str, int]
    ) -> CellHistory:
        """All panes that the state keeps. Exact where it keeps them from the generation's first one on, else cold.

        Raises HistoryError where a pane is missing, or there is none.
        """
        fields = store.read(("first_pane", "closed", "matured", KEPT))
        kept = kept_of(fields)
        if kept is None or fields["closed"] is None or fields["matured"] is None:
            raise HistoryError(f"the state of {key} has no closed panes yet; there is nothing to replay")
        last, matured = int(fields["closed"]), int(fields["matured"])
        panes: list[PaneBlobs] = []
        signatures: dict[int, tuple[str, ...]] = {}
        for first in range(kept.first_pane, last + 1, _PANES_A_READ):
            numbers = range(first, min(first + _PANES_A_READ, last + 1))
            scored = store.blobs([PaneNames.of(pane).scored for pane in numbers])
            grown = store.blobs([PaneNames.of(pane).matured for pane in numbers])
            hashes: set[int] = set()
            for pane, cells, outcomes in zip(numbers, scored, grown, strict=True):
                if cells is None or (outcomes is None and pane <= matured):
                    raise HistoryError(
                        f"the cells of pane {pane} of {key} are not in the state; restore it from a backup"
                    )
                panes.append(PaneBlobs(cells, outcomes if pane <= matured else None))
                hashes |= set(ScoredCells.unpack(cells).signature.tolist())
                if pane <= matured and outcomes is not None:
                    hashes |= set(MaturedCells.unpack(outcomes).signature.tolist())
            signatures |= store.signatures(hashes - signatures.keys())
        start: Start = "exact" if str(kept.first_pane) == fields["first_pane"] else "cold"
        return cls(key, generation, pane_ms, kept.first_pane, panes, signatures, start, source, dict(counts))
