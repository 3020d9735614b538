"""Strict JSON (RFC 8259) of record values, fast where the input is good and exact where it is not.

A C decoder reads every value. It keeps the last of two equal keys, so a second look is needed: each key and each string
value has exactly two quotes that are not escaped, hence a duplicate key shows as quotes that nothing in the decoded
objects accounts for. That is counted for a whole batch at once. Only values that the C decoder refuses, or that the
count makes suspect, go through the slower standard decoder, which says exactly what is wrong.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stream_calib.events.contracts import RejectReason
from stream_calib.events.messages import shown

JsonObject = dict[str, Any]

_MAX_INTEGER_DIGITS = 4_300
"""Longer integers are refused: CPython's own limit, and reading them takes quadratic time."""

_NOT_BRACKETS = bytes(sorted(set(range(256)) - set(b"[]{}")))


class BadJson(NamedTuple):
    """Why one value is not usable."""

    reason: RejectReason
    message: str


class _RefusedError(ValueError):
    def __init__(self, reason: RejectReason, message: str) -> None:
        super().__init__(message)
        self.verdict = BadJson(reason, message)


class JsonDecoder:
    """Decodes record values to objects. Bad input is answered with a `BadJson`, never with an exception.

    Refused: more than `max_record_bytes`, containers nested deeper than `max_depth` (the outermost object is 1), bytes
    that are not UTF-8, NaN and Infinity, numbers beyond float64 or of more than 4,300 digits, duplicate keys at any
    depth, anything whose outermost value is not an object. Integers are exact. Unpaired surrogates (escapes such as
    ``\\ud800``) are legal JSON and are passed on; what they may stand in is for the caller to say.
    """

    def __init__(self, max_record_bytes: int, max_depth: int) -> None:
        self._max_record_bytes = max_record_bytes
        self._max_depth = max_depth
        self._decode = msgspec.json.Decoder().decode

    def decode_all(self, values: Sequence[bytes]) -> list[JsonObject | BadJson]:
        """One object or refusal for each value, in order."""
        parsed = self._parse(values)
        if not parsed:
            return []
        good = range(len(parsed))
        if set(map(type, parsed)) != {dict}:
            good = [i for i in good if type(parsed[i]) is dict]  # type: ignore[assignment]  # a range is only the cheap form of the same list
        objects = parsed if len(good) == len(parsed) else [parsed[i] for i in good]
        joined = b"".join(values) if len(good) == len(parsed) else b"".join([values[i] for i in good])
        if self._is_exact(objects, joined):
            exact = set(good)
        else:
            exact = {i for i in good if self._is_exact([parsed[i]], values[i])}
        if len(exact) == len(parsed):
            return parsed
        return [parsed[i] if i in exact else self._decode_slowly(value) for i, value in enumerate(values)]

    def decode(self, value: bytes) -> JsonObject | BadJson:
        """The same for one value."""
        return self.decode_all([value])[0]

    def _parse(self, values: Sequence[bytes]) -> list[Any]:
        """What the C decoder makes of each value, None where it refuses, or where it is not asked: objects take many
        times the memory of their text, so a value that is too large is not decoded first."""
        if values and max(map(len, values)) > self._max_record_bytes:
            return [None if len(v) > self._max_record_bytes else self._parse_one(v) for v in values]
        try:
            return list(map(self._decode, values))
        except (msgspec.MsgspecError, RecursionError):
            return [self._parse_one(value) for value in values]

    def _parse_one(self, value: bytes) -> Any:
        try:
            return self._decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return None  # not swallowed: `_decode_slowly` finds out and says why

    def _is_exact(self, objects: Sequence[JsonObject], joined: bytes) -> bool:
        """Whether the objects are all that the joined bytes hold, and none is too deep."""
        flat = joined.count(b"{") == len(objects) and b"[" not in joined
        # Each key has one colon outside of strings, so as many colons as distinct keys leave no room for a duplicate.
        if flat and joined.count(b":") == sum(map(len, objects)):
            return True
        if b"\\" in joined:
            # Pairs of backslashes first, so that a quote after an escaped backslash is not taken for an escaped quote.
            joined = joined.replace(b"\\\\", b"").replace(b'\\"', b"")
        strings, depth = _strings_and_depth(objects)
        return depth <= self._max_depth and joined.count(b'"') == 2 * strings

    def _decode_slowly(self, value: bytes) -> JsonObject | BadJson:
        if len(value) > self._max_record_bytes:
            return BadJson(
                RejectReason.TOO_LARGE, f"{len(value)} bytes; records.max_record_bytes is {self._max_record_bytes}"
            )
        if not value.strip(b" \t\r\n"):
            return BadJson(RejectReason.EMPTY_VALUE, "the value is empty; a JSON object is needed")
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            return BadJson(RejectReason.NOT_UTF8, f"byte {error.start} is not UTF-8: {error.reason}")
        if _bracket_depth(value) > self._max_depth:
            return BadJson(RejectReason.TOO_DEEP, f"nested deeper than records.max_depth = {self._max_depth}")
        try:
            parsed = json.loads(
                text,
                object_pairs_hook=_object,
                parse_constant=_constant,
                parse_float=_finite_float,
                parse_int=_integer,
            )
        except _RefusedError as error:
            return error.verdict
        except json.JSONDecodeError as error:
            return BadJson(RejectReason.NOT_JSON, f"not JSON: {error.msg} at character {error.pos}")
        except ValueError as error:
            return BadJson(RejectReason.NOT_JSON, f"a number that this Python refuses: {error}")
        except RecursionError:
            return BadJson(RejectReason.TOO_DEEP, "nested deeper than the decoder's stack")
        if type(parsed) is not dict:
            return BadJson(RejectReason.NOT_AN_OBJECT, f"the value is {shown(parsed)}; a JSON object is needed")
        return parsed


def _strings_and_depth(objects: Sequence[JsonObject]) -> tuple[int, int]:
    """Number of keys and string values in the objects, and their greatest depth; level by level, without recursion."""
    strings = depth = 0
    dicts: Sequence[JsonObject] = objects
    lists: Sequence[list[Any]] = []
    while dicts or lists:
        depth += 1
        values = list(chain(chain.from_iterable(map(dict.values, dicts)), chain.from_iterable(lists)))
        kinds = set(map(type, values))
        strings += sum(map(len, dicts)) + len([None for value in values if type(value) is str])
        dicts = [value for value in values if type(value) is dict] if dict in kinds else []
        lists = [value for value in values if type(value) is list] if list in kinds else []
    return strings, depth


def _bracket_depth(value: bytes) -> int:
    """Nesting of the brackets outside of strings; at least the true depth of every valid prefix of the value."""
    without_escapes = value.replace(b"\\\\", b"").replace(b'\\"', b"")
    outside = b"".join(without_escapes.split(b'"')[::2])
    brackets = np.frombuffer(outside.translate(None, delete=_NOT_BRACKETS), dtype=np.uint8)
    if not len(brackets):
        return 0
    opening = (brackets == ord("[")) | (brackets == ord("{"))
    return int(np.cumsum(np.where(opening, 1, -1)).max())


def _object(pairs: list[tuple[str, Any]]) -> JsonObject:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # None on purpose
        raise _RefusedError(RejectReason.DUPLICATE_KEY, f"key {shown(twice)} is there twice in one object")
    return result


def _constant(token: str) -> float:
    raise _RefusedError(RejectReason.NOT_JSON, f"{token} is not JSON; numbers must be finite")


def _finite_float(token: str) -> float:
    value = float(token)
    if not math.isfinite(value):
        raise _RefusedError(RejectReason.NOT_JSON, f"number {shown(token)} is beyond the range of float64")
    return value


def _integer(token: str) -> int:
    if len(token) > _MAX_INTEGER_DIGITS:
        raise _RefusedError(RejectReason.NOT_JSON, f"an integer of {len(token)} digits; at most {_MAX_INTEGER_DIGITS}")
    return int(token)
