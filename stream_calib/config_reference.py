"""The reference page and the JSON schema of the configuration, made from the model.

``python -m stream_calib.config_reference`` prints the page that is kept as docs/configuration.md.
"""

from __future__ import annotations

import inspect
import json
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from stream_calib.config import Config
from stream_calib.config_file import ENVIRONMENT, is_duration, key_name, listed_section, subsection, written_value
from stream_calib.config_values import duration_text

_INTRODUCTION = """# Configuration

<!-- Made from the model in stream_calib/config.py by `make docs`; change it there. -->

One TOML file describes one deployment: `stream-calib run --config stream-calib.toml`. It is checked as a whole before
anything starts; an unknown key, a value out of range or two values that contradict each other stop it, with file, key,
value and what is allowed. `stream-calib config check` does only that, settings for the clients of Kafka and Redis, for
hooks, and the secrets of all these included, without connecting; `config show` prints what holds (defaults included,
secrets masked), `config schema` the JSON schema. A whole example:
[examples/flights/stream-calib.toml](../examples/flights/stream-calib.toml).

The smallest file names a model and its horizon:

```toml
[model]
name = "churn"

[windows]
horizon = "7d"
```

Where one topic holds the scores of several models or versions, `name_path` and `version_path` say where each record
names its own. Where one record holds the scores of several models, there is a table for each:

```toml
[[models]]
name = "fraud"
score = "scores.fraud"
version_path = "fraud_version"

[[models]]
name = "abuse"
score = "scores.abuse"
scale = "logit"
```

and `[fusion]` makes one score of them, which is calibrated too ([fusion.md](fusion.md)):

```toml
[fusion]
name = "misuse"
members = { fraud = 0.6, abuse = 0.4 }
```

* **Durations** are text with a unit: `"500ms"`, `"30s"`, `"5m"`, `"24h"`, `"7d"`. Where `"off"` is allowed, it says so.
* **Paths** name fields of the users' records with dots: `prediction.p_default`. A field whose name is literally the
  whole path wins over the nested one.
* **Small windows** need small latenesses too: a pane matures when the times on both topics have passed its end by
  `horizon` and `score_lateness` or `label_lateness`.
* **Windows** (`refit.gate_window`, `drift.psi_window`) are whole numbers of panes.
* Some settings decide how records are counted, and so name the generation of the stored state: state that was made
  under other values is refused at start. `stream-calib config plan` says of a change what it needs
  ([operations.md](operations.md#changing-settings)).
"""

_HEADER = ("| key | value | default | meaning |", "|---|---|---|---|")


def markdown() -> str:
    """The reference page."""
    parts = [_INTRODUCTION, _environment()]
    for name, field in Config.model_fields.items():
        section, listed = subsection(field), listed_section(field)
        if section is not None:
            parts.extend(_section(f"[{name}]", name, section))
        elif listed is not None:
            parts.extend(_section(f"[[{name}]]", name, listed))
        else:
            parts.extend([f"## `[{name}]`", "", *_HEADER, _row(name, field), ""])
    return "\n".join(parts)


def json_schema() -> dict[str, Any]:
    """JSON schema (draft 2020-12) of the file."""
    schema = Config.model_json_schema(by_alias=True)
    definitions = schema["$defs"]
    for section in _sections(Config):
        properties = definitions[section.__name__]["properties"] if section is not Config else schema["properties"]
        for name, field in section.model_fields.items():
            found = properties[key_name(name, field)]
            found.pop("title", None)
            if is_duration(name, field) and "default" in found:
                found["default"] = written_value(name, field, found["default"])
            elif (
                subsection(field) is not None or listed_section(field) is not None or found.get("default", ...) is None
            ):
                found.pop("default", None)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "stream-calib configuration"}


def _sections(section: type[BaseModel]) -> list[type[BaseModel]]:
    fields = section.model_fields.values()
    inner = [s for s in (subsection(field) or listed_section(field) for field in fields) if s is not None]
    return list(dict.fromkeys([section, *(deep for s in inner for deep in _sections(s))]))


def _environment() -> str:
    rows = [f"| `{name}` | `{section}.{key}` |" for name, (section, key) in ENVIRONMENT.items()]
    return "\n".join(
        [
            "## Environment",
            "",
            "Addresses may hold passwords, so they can come from the environment, which wins over the file. Each",
            "variable has a variant with `_FILE` at its end: the path of a file to read the value from. Addresses are",
            "shown without user and password.",
            "",
            "| variable | setting |",
            "|---|---|",
            *rows,
            "",
        ]
    )


def _section(title: str, path: str, section: type[BaseModel]) -> list[str]:
    lines = [
        f"## `{title}`",
        "",
        inspect.getdoc(section) or "",
        "",
        *_HEADER,
    ]
    inner: list[str] = []
    for name, field in section.model_fields.items():
        place = f"{path}.{key_name(name, field)}"
        if (deeper := subsection(field)) is not None:
            inner.extend(_section(f"[{place}]", place, deeper))
            continue
        lines.append(_row(name, field))
        if (listed := listed_section(field)) is not None:
            inner.extend(_section(f"[[{place}]]", place, listed))
    return [*lines, "", *inner]


def _row(name: str, field: FieldInfo) -> str:
    return f"| `{key_name(name, field)}` | {_allowed(name, field)} | {_default(name, field)} | {field.description} |"


def _default(name: str, field: FieldInfo) -> str:
    if field.is_required():
        return "must be given"
    value = written_value(name, field, field.get_default(call_default_factory=True))
    return "none" if value is None or value == {} or value == [] else f"`{json.dumps(value)}`"


def _allowed(name: str, field: FieldInfo) -> str:
    choices = get_args(field.annotation) if get_origin(field.annotation) is Literal else ()
    if choices:
        return ", ".join(f"`{json.dumps(choice)}`" for choice in choices)
    kind = _kind(name, field)
    return ", ".join([kind, *_limits(field, duration=is_duration(name, field))])


def _kind(name: str, field: FieldInfo) -> str:
    annotation, optional = field.annotation, type(None) in get_args(field.annotation)
    if is_duration(name, field):
        return 'duration or `"off"`' if optional else "duration"
    if get_origin(annotation) is dict:
        return "table"
    if listed_section(field) is not None:
        return "list of tables"
    if get_origin(annotation) is list:
        (element,) = get_args(annotation)
        return "list of lists" if get_origin(element) is list else "list of texts"
    names: dict[Any, str] = {int: "whole number", float: "number", bool: "true or false"}
    return next((names[kind] for kind in (annotation, *get_args(annotation)) if kind in names), "text")


def _limits(field: FieldInfo, *, duration: bool) -> list[str]:
    bounds: dict[str, float] = {}
    for constraint in field.metadata:
        for kind in ("gt", "ge", "lt", "le"):
            # The field's own limits come before those of its type.
            if hasattr(constraint, kind):
                bounds.setdefault(kind, getattr(constraint, kind))
    if duration and (bounds.get("ge") == 0 or "gt" in bounds):
        bounds.pop("ge", None)
    words = {"gt": "more than", "ge": "at least", "lt": "less than", "le": "at most"}
    return [f"{words[kind]} {duration_text(int(b)) if duration else f'{b:g}'}" for kind, b in bounds.items()]


if __name__ == "__main__":
    print(markdown(), end="")
