"""Loading the configuration: TOML file, then the environment, then the checks; and showing it without its secrets."""

from __future__ import annotations

import difflib
import importlib
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from stream_calib.config import Config
from stream_calib.config_alerts import of_places
from stream_calib.config_values import duration_text, mask_url
from stream_calib.errors import ConfigurationError

# By name, because each Python has only one of the two, and a type checker looks for both.
tomllib = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

ENVIRONMENT: dict[str, tuple[str, str]] = {
    "STREAM_CALIB_REDIS_URL": ("redis", "url"),
    "STREAM_CALIB_LOG_URL": ("log", "url"),
    "STREAM_CALIB_KAFKA_BOOTSTRAP": ("log", "bootstrap_servers"),
    "STREAM_CALIB_INSTANCE_ID": ("log", "instance_id"),
    "STREAM_CALIB_HTTP_LISTEN": ("http", "listen"),
}
"""Environment variable -> the setting it takes the place of. An empty variable counts as not set. Each has a variant
``<name>_FILE``: the file to read the value from."""

_SECRET = "url"
_LIMITS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_KINDS = {
    "int_type": "a whole number, without quotes",
    "float_type": "a number, without quotes",
    "string_type": 'text in quotes ("...")',
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
}


def load_config(path: Path | str, environ: Mapping[str, str]) -> Config:
    """The checked configuration of a file, with addresses from the environment.

    Raises ConfigurationError that names the file and lists every fault with its key, its value and what is allowed.
    """
    raw = read_toml(path)
    sources: dict[tuple[int | str, ...], str] = {}
    for name, (section, key) in ENVIRONMENT.items():
        value, table = _from_environment(name, environ), raw.setdefault(section, {})
        if value is not None and isinstance(table, dict):
            table[key] = value
            sources[section, key] = f"{path}, environment {name}"
    try:
        return Config.model_validate(raw)
    except ValidationError as error:
        faults = [
            f"{sources.get(fault['loc'], str(path))}: {fault_text(fault['loc'], fault, raw)}"
            for fault in error.errors()
        ]
    # Raised outside of the handler, so that no traceback repeats pydantic's error beside ours.
    raise ConfigurationError("\n".join(faults))


def read_toml(path: Path | str) -> dict[str, Any]:
    """The tables of a TOML file as they are. Raises ConfigurationError that names the file."""
    try:
        raw: dict[str, Any] = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: not UTF-8 text: {error.reason} at byte {error.start}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from error
    except (ValueError, RecursionError) as error:  # of a number of thousands of digits, of thousands of brackets
        raise ConfigurationError(f"{path}: not TOML that can be read: {error}") from error
    return raw


def redacted(config: Config) -> str:
    """The whole configuration as TOML, defaults included, secrets masked; without secrets it loads to an equal one."""
    return "\n".join(_rendered(config, ())).strip() + "\n"


def key_name(name: str, field: FieldInfo) -> str:
    """The key of a setting in the file."""
    return field.alias or name


def is_duration(name: str, field: FieldInfo) -> bool:
    """Whether the setting is a duration, in the file text with a unit."""
    return name.endswith("_ms") and field.alias is not None


def written_value(name: str, field: FieldInfo, value: Any) -> Any:
    """A setting's value as it stands in the file; None where nothing is written for it."""
    if is_duration(name, field):
        return "off" if value is None else duration_text(value)
    return value


def _from_environment(name: str, environ: Mapping[str, str]) -> str | None:
    value, file = environ.get(name), environ.get(f"{name}_FILE")
    if value and file:
        raise ConfigurationError(f"environment: {name} and {name}_FILE are both set; unset one of them")
    if not file:
        return value or None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"environment: {name}_FILE = {file}: cannot be read: {error}") from error


def fault_text(location: tuple[int | str, ...], fault: Any, raw: Mapping[str, Any]) -> str:
    """One line about one of pydantic's errors: key, value as written in `raw`, what is wrong or allowed."""
    key = _key_text(location) or "the configuration"
    kind, context = fault["type"], fault.get("ctx", {})
    if kind == "extra_forbidden":
        return f"{key}: unknown key{_suggestion(location)}"
    if kind == "missing":
        return f"{key}: must be given; there is no default"
    value = _written(raw, location)
    may_be_shown = not isinstance(value, (dict, list)) and not of_places(location)
    shown = f"{key} = {_shown(location, value)}" if may_be_shown else key
    if kind == "value_error":
        return f"{shown}: {context['error']}"
    if kind == "literal_error":
        return f"{shown}: allowed are {context['expected']}"
    if kind in _LIMITS:
        bound, words = _LIMITS[kind]
        limit = context[bound]
        # A duration is text in the file and a number of milliseconds once it is checked.
        return f"{shown}: must be {words} {duration_text(int(limit)) if isinstance(value, str) else limit}"
    if kind in _KINDS:
        return f"{shown}: must be {_KINDS[kind]}"
    return f"{shown}: {fault['msg']}"


def _key_text(location: tuple[int | str, ...]) -> str:
    """As in `scores.time.unit`, `models[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location).lstrip(".")


def _written(raw: Mapping[str, Any], location: tuple[int | str, ...]) -> Any:
    value: Any = raw
    for part in location:
        value = value[part]
    return value


def _shown(location: tuple[int | str, ...], value: Any) -> str:
    if location[-1:] == (_SECRET,) and isinstance(value, str):
        value = mask_url(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _suggestion(location: tuple[int | str, ...]) -> str:
    known = _keys(Config, ())
    section, wrong = tuple(part for part in location[:-1] if isinstance(part, str)), str(location[-1])
    near = difflib.get_close_matches(wrong, [path[-1] for path in known if path[:-1] == section], n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]}?"
    elsewhere = [".".join(path) for path in known if path[-1] == wrong]
    if elsewhere:
        return f"; did you mean {elsewhere[0]}?"
    anywhere = difflib.get_close_matches(wrong, [path[-1] for path in known], n=1, cutoff=0.8)
    if anywhere:
        return f"; did you mean {next('.'.join(path) for path in known if path[-1] == anywhere[0])}?"
    return f"; known here: {', '.join(path[-1] for path in known if path[:-1] == section)}"


def subsection(field: FieldInfo) -> type[BaseModel] | None:
    """The section that a field holds, None where it holds a value."""
    annotation = field.annotation
    return annotation if isinstance(annotation, type) and issubclass(annotation, BaseModel) else None


def listed_section(field: FieldInfo) -> type[BaseModel] | None:
    """The section that each table of a list of tables is, None where the field is no such list."""
    if get_origin(field.annotation) is not list:
        return None
    (item,) = get_args(field.annotation)
    return item if isinstance(item, type) and issubclass(item, BaseModel) else None


def _keys(section: type[BaseModel], path: tuple[str, ...]) -> list[tuple[str, ...]]:
    keys: list[tuple[str, ...]] = []
    for name, field in section.model_fields.items():
        key = (*path, key_name(name, field))
        keys.append(key)
        inner = subsection(field) or listed_section(field)
        if inner is not None:
            keys.extend(_keys(inner, key))
    return keys


def _rendered(section: BaseModel, path: tuple[str, ...], header: str | None = None) -> list[str]:
    lines, inner = [], []
    for name, field in type(section).model_fields.items():
        key, value = key_name(name, field), getattr(section, name)
        where = ".".join((*path, key))
        if isinstance(value, BaseModel):
            inner.append((value, (*path, key), f"[{where}]"))
            continue
        if listed_section(field) is not None:
            inner.extend((table, (*path, key), f"[[{where}]]") for table in value)
            continue
        value = written_value(name, field, value)
        if isinstance(value, dict):
            lines.append(f"{key} = {toml_value(value)}")
        elif value is not None:
            lines.append(f"{key} = {_shown((key,), value)}")
    parts = [*([header] if header else []), *lines, ""] if lines else []
    for table, place, title in inner:
        parts.extend(_rendered(table, place, title))
    return parts


def toml_value(value: Any) -> str:
    """A text, a number, a truth value, a list of texts, or a table of any, as TOML on one line."""
    if isinstance(value, dict):
        items = ", ".join(f"{_toml_text(k)} = {toml_value(v)}" for k, v in value.items())
        return f"{{ {items} }}" if items else "{}"
    if isinstance(value, float):
        return json.dumps(value)
    return f"[{', '.join(map(_toml_text, value))}]" if isinstance(value, list) else _toml_text(value)


def _toml_text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False, default=str).replace("\x7f", "\\u007f")
