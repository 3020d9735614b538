"""The section [alerts]: hooks, and which alerts they are told of.

Secrets are never values in the file: each is named as "env:NAME" or "file:PATH".
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from stream_calib.config_values import DurationMs, Section

_SECRET = re.compile(r"(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)")


def _secret_place(value: str) -> str:
    if not _SECRET.fullmatch(value):
        raise ValueError('name where the secret is, "env:NAME" or "file:PATH", not the secret itself')
    return value


SecretPlace = Annotated[str, AfterValidator(_secret_place)]
"""Where a secret is: "env:NAME" or "file:PATH"."""

SeverityName = Literal["info", "warning", "critical"]


class HookSection(Section):
    """One receiver of alerts."""

    name: str = Field(min_length=1, max_length=64, description="What routes, silences and `alerts test` call it")
    kind: Literal["webhook", "pagerduty", "apprise", "command"] = Field(
        description="`webhook`: signed HTTP; `pagerduty`: its events API; `apprise`: Slack, e-mail and the rest;"
        " `command`: a program of this machine"
    )
    url: SecretPlace | None = Field(
        default=None, description='Address of the receiver, where it is: "env:NAME" or "file:PATH"; addresses hold keys'
    )
    secrets: list[SecretPlace] = Field(
        default_factory=list, description="webhook: signing secrets (`whsec_...`), the newest first; pagerduty: its key"
    )
    command: list[str] = Field(
        default_factory=list, description="command: program and arguments; the message comes on its input, as JSON"
    )
    timeout_ms: DurationMs = Field(default=10_000, alias="timeout", gt=0, le=60_000, description="Of one attempt")
    allow_private: bool = Field(default=False, description="Whether the address may be a private one")
    ca_file: str | None = Field(default=None, description="Certificates to trust in place of the system's")


class RouteSection(Section):
    """Which alerts a hook is told of."""

    hooks: list[str] = Field(min_length=1, description="Names of hooks")
    kinds: list[str] = Field(default_factory=list, description="Alert kinds; empty: all")
    models: list[str] = Field(default_factory=list, description="Models, as `name` or `name/version`; empty: all")
    severity: SeverityName = Field(default="warning", description="The least severity")


class AlertsSection(Section):
    """Who is told of what."""

    hooks: list[HookSection] = Field(default_factory=list, max_length=32, description="Receivers beside the topic")
    routes: list[RouteSection] = Field(default_factory=list, description="Empty: every hook is told of all warnings")
