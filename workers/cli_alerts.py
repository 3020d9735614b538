"""`stream-calib alerts`: list alerts, take one on, silence some, and try a hook."""

from __future__ import annotations

from contextlib import closing
from typing import Annotated

import msgspec
import typer
from pydantic import TypeAdapter, ValidationError

from stream_calib.alerts.acknowledgement import acknowledge
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.model import SEVERITY, Alert, alert_of
from stream_calib.alerts.outbox import LIST, open_alerts
from stream_calib.alerts.redelivery import Redelivered
from stream_calib.alerts.redelivery import redeliver as owed_again
from stream_calib.alerts.routing import Routing
from stream_calib.alerts.silence import Silences
from stream_calib.config import Config
from stream_calib.config_alerts import HookSection
from stream_calib.config_values import DurationMs
from stream_calib.errors import ConfigurationError, StateError, StateUnavailableError
from stream_calib.events.contracts import ModelKey
from stream_calib.events.event_times import iso8601_ms
from stream_calib.redis_clients import RedisClient
from stream_calib.windows.model_registry import deployment_scope
from stream_calib.windows.state_store import StateStore
from workers.alert_listing import event_rows, hook_rows, open_rows
from workers.alert_tables import covered, event_table, open_table, silence_table
from workers.cli_common import DEFAULT_CONFIG, ConfigOption, JsonOption, console, load, print_json, readable_errors
from workers.cli_models import known_keys
from workers.cli_snapshot_changes import stated_reason, user_name
from workers.deployment import connect_state, hooks_of, open_deployment_store, state_of
from workers.role import wall_clock_ms
from workers.time_text import utc_minute

app = typer.Typer(no_args_is_help=True, help="List alerts, acknowledge one, silence some, and try a hook.")

ReasonOption = Annotated[str, typer.Option("--reason", callback=stated_reason, help="Why; shown with it.")]
ActorOption = Annotated[str, typer.Option("--actor", help="Who; shown with it.", show_default="the user's name")]
_DURATION: TypeAdapter[int] = TypeAdapter(DurationMs)


@app.command("list", epilog="Examples: stream-calib alerts list ; stream-calib alerts list --all --json")
def list_alerts(
    only_open: Annotated[
        bool, typer.Option("--open/--all", help="What is open now, or every event that is kept.")
    ] = True,
    config: ConfigOption = DEFAULT_CONFIG,
    as_json: JsonOption = False,
) -> None:
    """Alerts of all models and of the deployment itself, with who acknowledged them and what silences them; then the
    silences, and what hooks were not told."""
    with readable_errors():
        loaded, now_ms = load(config), wall_clock_ms()
        with closing(connect_state(loaded)) as client:
            silences = Silences(open_deployment_store(client, loaded)).at(now_ms)
            stores = _outboxes(client, loaded)
            found = [
                row for store in stores for row in (open_rows(store, silences) if only_open else event_rows(store))
            ]
            hooks = hook_rows(stores, [hook.name for hook in loaded.alerts.hooks], now_ms)
    if as_json:
        silent = [msgspec.to_builtins(silence) for silence in silences]
        print_json({"alerts": found, "silences": silent, "hooks": hooks})
        return
    console.print(open_table(found, now_ms) if only_open else event_table(found))
    if silences:
        console.print(silence_table(silences, now_ms))
    for row in hooks:
        if row["given_up"]:
            said = f"{row['hook']} was not told of {_events(row['given_up'])}: {row['given_up_last']['detail']}"
            console.print(f"{said}. Once that is mended: `stream-calib alerts redeliver {row['hook']}`")


@app.command(epilog='Example: stream-calib alerts ack flights/1:psi --reason "new fares, refit is asked for"')
def ack(
    key: Annotated[str, typer.Argument(metavar="KEY", help="Of an open alert, as `alerts list` shows it.")],
    reason: ReasonOption,
    actor: ActorOption = "",
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Take an open alert on: hooks bring no more news of it until it closes or gets worse. Those that have told of it
    say that you have, PagerDuty as an acknowledgement."""
    with readable_errors():
        loaded = load(config)
        with closing(connect_state(loaded)) as client:
            known: list[str] = []
            for store in _outboxes(client, loaded):
                number = store.length(LIST)  # before the alerts: what comes in between may end it
                alerts = open_alerts(store)
                if (alert := alerts.get(key)) is not None:
                    acknowledge(store, alert, number, actor or user_name(), reason, wall_clock_ms())
                    break
                known += alerts
            else:
                raise ConfigurationError(f"no alert {key} is open; open are {', '.join(known) or 'none'}")
    console.print(f"{key} is acknowledged until it closes or gets worse")


@app.command(
    epilog='Examples: stream-calib alerts silence --model flights --for 2h --reason "load test" ; ... silence --kind'
    ' late_labels --until 2024-05-01T06:00Z --reason "the nightly load is late"'
)
def silence(
    reason: ReasonOption,
    model: Annotated[str | None, typer.Option("--model", help="`name` or `name/version`; all without it.")] = None,
    kind: Annotated[str | None, typer.Option("--kind", help="A kind of alert; all without it.")] = None,
    until: Annotated[str | None, typer.Option("--until", help="A time, as 2024-05-01T06:00Z.")] = None,
    lasts: Annotated[str | None, typer.Option("--for", help='How long, as "30m" or "2h".')] = None,
    actor: ActorOption = "",
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Tell no hook of some alerts for a while. They are kept and listed; what is open still when it ends is told then,
    and the end of what a hook was told of is told in any case."""
    with readable_errors():
        if kind is not None and kind not in SEVERITY:
            raise ConfigurationError(f"--kind {kind} is no kind of alert; they are {', '.join(SEVERITY)}")
        loaded, now_ms = load(config), wall_clock_ms()
        ends_ms = _end(until, lasts, now_ms)
        with closing(connect_state(loaded)) as client:
            silences = Silences(open_deployment_store(client, loaded))
            made = silences.add(model, kind, ends_ms, actor or user_name(), reason, now_ms)
            keys = [deployment_scope(loaded.log.group_prefix), *known_keys(client, loaded)]
    console.print(
        f"{covered(made)} are silent until {utc_minute(made.until_ms)} UTC;"
        f" `stream-calib alerts unsilence {made.id}` ends it"
    )
    if model is not None and not any(model in (key.model, str(key)) for key in keys):
        there = ", ".join(str(key) for key in keys)
        console.print(f"Nothing has the name {model} by now, so this silences nothing yet; there are {there}")


@app.command(epilog="Example: stream-calib alerts unsilence 3")
def unsilence(
    number: Annotated[int, typer.Argument(help="Of the silence, as `alerts list` shows it.")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """End a silence now: what it held, and is open still, is told."""
    with readable_errors():
        loaded, now_ms = load(config), wall_clock_ms()
        with closing(connect_state(loaded)) as client:
            silences = Silences(open_deployment_store(client, loaded))
            ended = silences.end(number, now_ms)
            if ended is None:
                there = ", ".join(str(one.id) for one in silences.at(now_ms))
                raise ConfigurationError(f"there is no silence {number}; there are {there or 'none'}")
    console.print(f"{covered(ended)} are told again")


@app.command(epilog="Example: stream-calib alerts redeliver pager")
def redeliver(
    hook: Annotated[str, typer.Argument(help="Name of a hook of the configuration.")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Tell a hook what was given up for it, as far as it is kept (the newest 200 of each model): after its address or
    secret was mended. Behind it comes the last event of each alert, so that the hook ends up right."""
    with readable_errors():
        loaded, now_ms = load(config), wall_clock_ms()
        name, routing = _hook(loaded, hook).name, Routing(loaded.alerts)
        done, failed = list[Redelivered](), list[str]()
        with closing(connect_state(loaded)) as client:
            for store in _outboxes(client, loaded):
                try:
                    done.append(owed_again(store, name, lambda alert: routing.tells(name, alert), now_ms))
                except StateUnavailableError:
                    raise
                except StateError as error:  # of this outbox; the others go on
                    failed.append(str(error))
        owed, over = sum(one.owed for one in done), sum(one.over for one in done)
        if owed or not failed:
            console.print(f"{_events(owed)} told to {hook} again" if owed else f"{hook} has nothing to be told again")
        if over:
            console.print(
                f"left: {_events(over)} of alerts that are over, and whose end is kept no more; {hook} may never have"
                " been told of it"
            )
        if failed:
            raise StateError("; ".join(failed))


def _events(n: int) -> str:
    return f"{n:,} event{'s' * (n != 1)}"


def _hook(config: Config, name: str) -> HookSection:
    """Raises ConfigurationError where there is none of the name."""
    section = next((one for one in config.alerts.hooks if one.name == name), None)
    if section is None:
        there = ", ".join(one.name for one in config.alerts.hooks)
        raise ConfigurationError(f"there is no hook {name}; the configuration has {there or 'none'}")
    return section


@app.command("test", epilog="Example: stream-calib alerts test pager")
def try_hook(
    hook: Annotated[str, typer.Argument(help="Name of a hook of the configuration.")],
    config: ConfigOption = DEFAULT_CONFIG,
) -> None:
    """Send a hook an alert that is marked as a test, now, and say what came of it: nothing is kept or tried again, and
    routes, silences and quiet hours do not count."""
    with readable_errors():
        loaded = load(config)
        (opened,) = hooks_of(loaded.alerts.model_copy(update={"hooks": [_hook(loaded, hook)]}))
        try:
            result = opened.send(Message([_test_alert(loaded)], is_test=True))
        finally:
            opened.close()
    console.print(_outcome(hook, result))
    if result.outcome != "delivered":
        raise typer.Exit(1)


def _test_alert(config: Config) -> Alert:
    now_ms = wall_clock_ms()
    return alert_of(
        deployment_scope(config.log.group_prefix),
        "no_scores",
        "open",
        ("test", now_ms),
        subject="test",
        pane=now_ms // config.windows.pane_ms,
        since_ms=now_ms,
        diagnosis="This is a test of the way from stream-calib to you. Nothing is wrong, and nothing needs to be done.",
        evidence={"test": True},
    )


def _outcome(hook: str, result: Delivery) -> str:
    if result.outcome == "delivered":
        return f"{hook} took the test alert: {result.detail}. Look whether it has reached people."
    if result.outcome == "rejected":
        return (
            f"{hook} refused the test alert, and would refuse real ones: {result.detail}. Look at the hook's address"
            " and secrets; what it refuses is given up at once, and told by `stream-calib alerts redeliver` afterwards"
        )
    wait = "" if result.retry_after_s is None else f" (it asks for {result.retry_after_s:.0f} s)"
    return f"{hook} could not be reached now: {result.detail}. A real alert would be tried again{wait}"


def _outboxes(client: RedisClient, config: Config) -> list[StateStore]:
    """The deployment's own, then that of each model key."""
    keys: list[ModelKey] = known_keys(client, config)
    return [open_deployment_store(client, config), *(state_of(client, config, key).store for key in keys)]


def _end(until: str | None, lasts: str | None, now_ms: int) -> int:
    """Epoch milliseconds. Raises ConfigurationError."""
    if (until is None) == (lasts is None):
        raise ConfigurationError("say how long: either --for 2h, or --until 2024-05-01T06:00Z")
    if lasts is not None:
        try:
            lasts_ms = _DURATION.validate_python(lasts)
        except ValidationError as error:
            raise ConfigurationError(f'--for {lasts} is no duration; write it as "30m", "2h" or "1d"') from error
        if lasts_ms == 0:
            raise ConfigurationError(
                f"--for {lasts} is over at once; to end a silence: `stream-calib alerts unsilence`"
            )
        return now_ms + lasts_ms
    ends_ms = iso8601_ms(until or "")
    if ends_ms is None:
        raise ConfigurationError(f"--until {until} is not a time; write it as 2024-05-01T06:00Z")
    if ends_ms <= now_ms:
        raise ConfigurationError(f"--until {until} is over")
    return ends_ms
