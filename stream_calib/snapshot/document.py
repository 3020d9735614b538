"""What every stored document is: frozen, strict, with one form in bytes."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

from stream_calib.snapshot.canonical import canonical_json


class Document(BaseModel):
    """Frozen, strict, unknown keys refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    def encode(self) -> bytes:
        """Canonical JSON."""
        return canonical_json(self.model_dump(mode="json"))
