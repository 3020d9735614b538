"""The section [alerts]: hooks, and which alerts they are told of.

Secrets are never values in the file: each is named as "env:NAME" or "file:PATH".
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field, model_validator

from stream_calib.alerts.model import SEVERITY, Severity
from stream_calib.alerts.quiet_hours import QuietHours
from stream_calib.alerts.severity import RANK
from stream_calib.config_conditions import ConditionsSection
from stream_calib.config_secrets import SecretPlace
from stream_calib.config_values import DurationMs, Section
from stream_calib.errors import ConfigurationError

_OF_PLACES = ("url", "secrets", "proxy")


def of_places(location: Sequence[int | str]) -> bool:
    """Whether a setting, as `("alerts", "hooks", 0, "url")`, names places of secrets. What was written there by mistake
    may be the secret itself, so messages do not show it."""
    return tuple(location[:2]) == ("alerts", "hooks") and any(key in location[3:] for key in _OF_PLACES)


class QuietHoursSection(Section):
    """When a hook is told of the worst only. What is held is told, in one message, when the quiet hours end."""

    start: str = Field(description='When they begin, as "22:00"')
    end: str = Field(description='When they end, as "07:00"; where it is not later than `start`, on the next day')
    zone: str = Field(default="UTC", description='Time zone of both, as "Europe/Berlin"')
    days: list[str] = Field(
        default_factory=list, description='Days on which they begin, as "mon"; empty: every day', max_length=7
    )
    severity: Severity = Field(default="critical", description="From here on alerts are told all the same")

    def parsed(self) -> QuietHours:
        """Raises ConfigurationError."""
        return QuietHours.parse(self.start, self.end, self.zone, self.days, self.severity)

    @model_validator(mode="after")
    def _can_be_parsed(self) -> QuietHoursSection:
        try:
            self.parsed()
        except ConfigurationError as error:
            raise ValueError(str(error)) from error
        return self


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
    gather_ms: DurationMs = Field(
        default=5_000,
        alias="gather",
        le=3_600_000,
        description="Alerts that come within so long of a first are told with it",
    )
    max_messages: int = Field(
        default=20,
        ge=1,
        le=1_000,
        description="Most messages in a row; then one comes free in each `max_messages_per` / `max_messages`, with all"
        " that has come meanwhile",
    )
    max_messages_per_ms: DurationMs = Field(
        default=600_000, alias="max_messages_per", gt=0, description="See `max_messages`"
    )
    quiet_hours: list[QuietHoursSection] = Field(default_factory=list, description="When it is told of the worst only")
    allow_private: bool = Field(default=False, description="Whether the address may be a private one")
    ca_file: str | None = Field(
        default=None, description="PEM file of the certificates to trust in place of the system's"
    )
    proxy: SecretPlace | None = Field(
        default=None,
        description='Address of an HTTP proxy, where it is: "env:NAME" or "file:PATH"; proxies that the environment'
        " names are not used",
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
    """Which alerts a hook is told of: those of every route that names it."""

    hooks: list[str] = Field(min_length=1, description="Names of hooks")
    kinds: list[str] = Field(default_factory=list, description="Alert kinds; empty: all")
    models: list[str] = Field(default_factory=list, description="Models, as `name` or `name/version`; empty: all")
    severity: Severity = Field(default="warning", description="The least severity")


class AlertsSection(Section):
    """Who is told of what."""

    hooks: list[HookSection] = Field(default_factory=list, max_length=32, description="Receivers beside the topic")
    routes: list[RouteSection] = Field(default_factory=list, description="Empty: every hook is told of all warnings")
    conditions: ConditionsSection = ConditionsSection()
    give_up_after_ms: DurationMs = Field(
        default=86_400_000,
        alias="give_up_after",
        gt=0,
        description="An event that a hook has not taken for so long, from its first failure on, is given up",
    )
    runbook_url: str = Field(
        default="docs/operations.md",
        description="Begins the link of a message to what is to be done; `#` and the alert's kind are put after it",
    )

    @model_validator(mode="after")
    def _routes_lead_somewhere(self) -> AlertsSection:
        names = [hook.name for hook in self.hooks]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"two hooks are called {twice!r}; each needs a name of its own")
        for route in self.routes:
            if unknown := next((name for name in route.hooks if name not in names), None):
                raise ValueError(f"a route leads to {unknown!r}; the hooks are {', '.join(names) or 'none'}")
            if unknown := next((kind for kind in route.kinds if kind not in SEVERITY), None):
                raise ValueError(f"a route is of the kind {unknown!r}; the kinds are {', '.join(SEVERITY)}")
            mild = next((k for k, s in SEVERITY.items() if k in route.kinds and RANK[s] < RANK[route.severity]), None)
            if mild is not None:
                raise ValueError(
                    f"a route is of the kind {mild!r}, whose alerts are {SEVERITY[mild]}, and asks for {route.severity}"
                    f' or worse: none of them would be told; set severity = "{SEVERITY[mild]}", or take the kind out'
                )
        return self
