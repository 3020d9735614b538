"""`stream-calib config`: check, show, schema."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from stream_calib.config_file import redacted, tomllib
from stream_calib.config_identity import configured_keys, semantic_hash
from stream_calib.config_reference import json_schema, markdown
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_config_plan import plan_change
from workers.client_checks import check_client_settings

app = typer.Typer(no_args_is_help=True, help="Check and show the configuration.")
app.command(
    "plan", epilog="Examples: stream-calib config plan new.toml ; stream-calib config plan new.toml --against prod.toml"
)(plan_change)


@app.command(epilog="Example: stream-calib config check --config examples/flights/stream-calib.toml")
def check(config: ConfigOption = DEFAULT_CONFIG) -> None:
    """Say whether the file can be used; each fault with where it is and what is allowed.

    So are the settings of the clients of Kafka and Redis, with their secrets and files, without a connection: check it
    where the roles will run. `stream-calib doctor` also connects.
    """
    with readable_errors():
        loaded = load(config)
        check_client_settings(loaded)
    keys = ", ".join(map(str, configured_keys(loaded))) or "models named by the records"
    console.print(f"{config}: good; {keys}; state {semantic_hash(loaded)}")


@app.command(epilog="Example: stream-calib config show --json")
def show(config: ConfigOption = DEFAULT_CONFIG, as_json: JsonOption = False) -> None:
    """Show every setting as it will be used: file, environment and defaults; passwords masked."""
    with readable_errors():
        loaded = load(config)
    if as_json:
        print_json(tomllib.loads(redacted(loaded)))
    else:
        sys.stdout.write(redacted(loaded))


@app.command(
    epilog="Examples: stream-calib config schema > stream-calib.schema.json ; stream-calib config schema --markdown"
)
def schema(as_markdown: Annotated[bool, typer.Option("--markdown", help="The reference page.")] = False) -> None:
    """Print the JSON schema of the file, or its reference page."""
    sys.stdout.write(markdown() if as_markdown else json.dumps(json_schema(), indent=2) + "\n")
