"""What every stored document is: frozen, strict, with one form in bytes."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer

from stream_calib.snapshot.canonical import canonical_json


class Document(BaseModel):
    """Frozen, strict, unknown keys and numbers that are not finite refused."""

    # Serialised as constants, which canonical JSON refuses: by default NaN would be written as null, in silence.
    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, ser_json_inf_nan="constants"
    )

    def encode(self) -> bytes:
        """Canonical JSON. Raises ValueError for NaN and infinity, which only unchecked copies can hold."""
        return canonical_json(self.model_dump(mode="json"))

    def written_fields(self) -> list[str]:
        """Those that are in the bytes."""
        return list(type(self).model_fields)


class ExtendedDocument(Document):
    """A document to which fields were added: those in `later` are left out while they have their defaults."""

    later: ClassVar[frozenset[str]] = frozenset()

    def written_fields(self) -> list[str]:
        """As of Document."""
        unused = self._unused()
        return [name for name in super().written_fields() if name not in unused]

    @model_serializer(mode="wrap")
    def _without_unused(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        document: dict[str, Any] = dump(self)
        for name in self._unused():
            document.pop(name, None)
        return document

    def _unused(self) -> list[str]:
        return [name for name, default in _later_defaults(type(self)).items() if getattr(self, name) == default]


@cache
def _later_defaults(kind: type[ExtendedDocument]) -> dict[str, Any]:
    """Of the fields that were added. Asked for once a kind: a snapshot has thousands of such parts."""
    return {name: kind.model_fields[name].default for name in kind.later}
