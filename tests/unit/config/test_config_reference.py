"""The reference page and the schema follow the model."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel

from stream_calib.config import Config
from stream_calib.config_file import key_name, listed_section, subsection
from stream_calib.config_reference import json_schema, markdown

PAGE = Path(__file__).parents[3] / "docs/configuration.md"


def settings_of(section: type[BaseModel]) -> list[tuple[str, str | None]]:
    """Key and description of every setting below the section."""
    found: list[tuple[str, str | None]] = []
    for name, field in section.model_fields.items():
        inner = subsection(field) or listed_section(field)
        found.extend([(key_name(name, field), field.description)] if inner is None else settings_of(inner))
    return found


def test_the_page_in_the_repository_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == markdown(), "run `make docs` and commit docs/configuration.md"


def test_the_module_prints_the_page() -> None:
    command = [sys.executable, "-m", "stream_calib.config_reference"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True, cwd=PAGE.parents[1]).stdout

    assert printed == markdown()


def test_every_setting_is_described() -> None:
    page = markdown()

    for key, description in settings_of(Config):
        assert description, key
        assert f"| `{key}` | " in page
        assert description in page


def test_lists_are_of_what_they_hold() -> None:
    page = markdown()

    assert "| `sentinels` | list of texts |" in page
    assert "| `intersections` | list of lists |" in page


def test_optional_settings_are_of_their_kind() -> None:
    page = markdown()

    assert "| `replication_factor` | whole number, at least 1, at most 100 | none |" in page
    assert "| `instance_id` | text | none |" in page


def test_sections_are_described_without_indentation() -> None:
    assert not any(line.startswith("    ") for line in markdown().splitlines())


def test_the_schema_is_of_the_file() -> None:
    schema = json_schema()
    windows = schema["$defs"]["WindowsSection"]

    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"windows"}
    assert windows["required"] == ["horizon"]
    assert windows["properties"]["pane"]["default"] == "1h"
    assert windows["properties"]["pane"]["type"] == "string"
    assert schema["$defs"]["RefitSection"]["properties"]["level_cadence"]["default"] == "off"
    assert schema["$defs"]["ScoreModelSection"]["required"] == ["name", "score"]
    assert schema["properties"]["models"]["items"] == {"$ref": "#/$defs/ScoreModelSection"}
    assert "pane_ms" not in windows["properties"]
