"""The section [alerts]: hooks, and which alerts they are told of.

Secrets are never values in the file: each is named as "env:NAME" or "file:PATH".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from stream_calib.config_secrets import SecretPlace
from stream_calib.config_values import DurationMs, Section

_OF_PLACES = ("url", "secrets", "proxy")


def of_places(location: Sequence[int | str]) -> bool:
    """Whether a setting, as `("alerts", "hooks", 0, "url")`, names places of secrets. What was written there by mistake
    may be the secret itself, so messages do not show it."""
    return tuple(location[:2]) == ("alerts", "hooks") and any(key in location[3:] for key in _OF_PLACES)


SeverityName = Literal["info", "warning", "critical"]


class HookSection(Section):
    """One receiver of alerts."""

    name: str = Field(pattern=r"^[A-Za-z0-9._-]{1,64}$", description="What routes, silences and `alerts test` call it")
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
    ca_file: str | None = Field(
        default=None, description="PEM file of the certificates to trust in place of the system's"
    )
    proxy: SecretPlace | None = Field(
        default=None,
        description='Address of an HTTP proxy, where it is: "env:NAME" or "file:PATH"; proxies that the environment names'
        " are not used",
    )

    @model_validator(mode="after")
    def _has_what_its_kind_takes(self) -> HookSection:
        must, may = _TAKES[self.kind]
        given = {name for name in _OF_KINDS if getattr(self, name)}
        if missing := must - given:
            raise ValueError(f"a hook of the kind {self.kind} needs {_listed(missing)}")
        if unknown := given - must - may:
            raise ValueError(f"a hook of the kind {self.kind} takes no {_listed(unknown)}")
        if self.kind == "pagerduty" and len(self.secrets) != 1:
            raise ValueError("a hook of the kind pagerduty takes one secret, the integration key of its service")
        return self


_OF_HTTP = {"allow_private", "ca_file", "proxy"}
_TAKES: dict[str, tuple[set[str], set[str]]] = {
    "webhook": ({"url", "secrets"}, _OF_HTTP),
    "pagerduty": ({"secrets"}, {"url", *_OF_HTTP}),
    "apprise": ({"url"}, _OF_HTTP),
    "command": ({"command"}, set()),
}
"""Kind -> settings that it must have, and those that it may have beside them."""
_OF_KINDS = ("url", "secrets", "command", *sorted(_OF_HTTP))


def _listed(names: set[str]) -> str:
    return " and ".join(name for name in _OF_KINDS if name in names)


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
    runbook_url: str = Field(
        default="docs/operations.md",
        description="Begins the link of a message to what is to be done; `#` and the alert's kind are put after it",
    )

    @model_validator(mode="after")
    def _names_are_distinct(self) -> AlertsSection:
        names = [hook.name for hook in self.hooks]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several hooks are called {twice[0]}; each needs a name of its own")
        return self
