"""What the sections of the configuration are made of: their base, and the values that have a form of their own.

Error messages say what is allowed; what was written is added by config_file, which knows what may be shown.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

Choice = TypeVar("Choice", bound=str)

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)\s*(ms|s|m|h|d)")
_TOPIC_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_URL_SCHEMES = ("redis", "rediss", "unix")


class Section(BaseModel):
    # Values are hidden in pydantic's own errors because addresses may hold passwords; config_file shows the others.
    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        hide_input_in_errors=True,
    )


def duration_ms(value: Any) -> int:
    """Milliseconds of a duration as it is written in the file. Raises ValueError."""
    if not isinstance(value, str):
        raise ValueError('a duration needs a unit; write it as text, as "5m" or "24h"')
    match = _DURATION.fullmatch(value.strip())
    if match is None:
        raise ValueError('not a duration; write a number and a unit, as "500ms", "30s", "5m", "1h", "7d"')
    return round(float(match[1]) * _UNITS_MS[match[2]])


def _duration_ms_or_off(value: Any) -> int | None:
    return None if value == "off" else duration_ms(value)


def duration_text(duration_ms: int) -> str:
    """The duration as it is written in the file, in the largest unit that divides it."""
    unit = next(name for name, ms in reversed(_UNITS_MS.items()) if duration_ms % ms == 0 and (duration_ms or ms == 1))
    return f"{duration_ms // _UNITS_MS[unit]}{unit}"


def in_order(given: Sequence[Choice], known: Sequence[Choice]) -> list[Choice]:
    """The given ones in the order of those that are known, because the same set is the same setting.

    Raises ValueError where one is given twice.
    """
    for one in given:
        if given.count(one) > 1:
            raise ValueError(f"{one!r} is there twice; give each once")
    return [one for one in known if one in given]


def mask_url(url: str) -> str:
    """The address without user, password and query values that could be secrets."""
    without_user = re.sub(r"^(\w+://)?.*@", r"\1***@", url, flags=re.DOTALL)
    return re.sub(r"(?<==)[^&]+", "***", without_user)


def _server_url(value: str) -> str:
    try:
        parts = urlsplit(value)
        sound = parts.scheme in _URL_SCHEMES and bool(parts.path if parts.scheme == "unix" else parts.hostname)
        port = parts.port
    except ValueError:
        sound, port = (
            False,
            None,
        )  # a bad port or a broken IPv6 address; the text may hold a password, so it is not shown
    if not sound or port == 0:
        raise ValueError('not the address of a server; write "redis://host:6379/0", "rediss://..." or "unix:///path"')
    return value


def _topic_name(value: str) -> str:
    if not _TOPIC_NAME.fullmatch(value) or value in (".", ".."):
        raise ValueError("not a topic name; use 1-249 characters of A-Z a-z 0-9 . _ -")
    return value


def _path(value: str) -> str:
    if not all(value.split(".")):
        raise ValueError('not a path; write field names with dots between them, as "prediction.score"')
    return value


_DURATION_SCHEMA = {"type": "string", "pattern": f"^{_DURATION.pattern}$"}

DurationMs = Annotated[int, BeforeValidator(duration_ms), Field(ge=0), WithJsonSchema(_DURATION_SCHEMA)]
DurationMsOrOff = Annotated[
    int | None,
    BeforeValidator(_duration_ms_or_off),
    WithJsonSchema({"type": "string", "pattern": f"^(off|{_DURATION.pattern})$"}),
]
ServerUrl = Annotated[str, AfterValidator(_server_url)]
TopicName = Annotated[str, AfterValidator(_topic_name)]
FieldPath = Annotated[str, AfterValidator(_path)]
