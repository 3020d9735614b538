"""Where secrets are: never values in the file, but places, "env:NAME" or "file:PATH"."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from stream_calib.errors import ConfigurationError

_PLACE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")


def is_place(value: str) -> bool:
    return _PLACE.fullmatch(value) is not None


def _place(value: str) -> str:
    if not is_place(value):
        raise ValueError('name where the secret is, "env:NAME" or "file:PATH", not the secret itself')
    return value


SecretPlace = Annotated[str, AfterValidator(_place)]
"""Where a secret is: "env:NAME" or "file:PATH"."""


def read_secret(place: str, setting: str) -> str:
    """What is at the place, of a file without white space around it. Raises ConfigurationError, which names `setting`
    and the place, where it cannot be read."""
    kind, _, name = place.partition(":")
    try:
        return os.environ[name] if kind == "env" else Path(name).read_text(encoding="utf-8").strip()
    except KeyError:
        raise ConfigurationError(f"{setting} = {place}: the environment has no variable {name}; set it") from None
    except UnicodeDecodeError:
        # Not the error itself: it holds the bytes.
        raise ConfigurationError(f"{setting} = {place}: cannot be read: it is not UTF-8 text") from None
    except OSError as error:
        raise ConfigurationError(f"{setting} = {place}: cannot be read: {error}") from error
