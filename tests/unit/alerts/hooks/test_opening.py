"""Hooks of a configuration: what each kind takes, and what is said where that is not there, without showing it."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from stream_calib.alerts.hooks.opening import open_hooks
from stream_calib.alerts.hooks.webhook import signatures
from stream_calib.config import Config
from stream_calib.config_alerts import AlertsSection
from stream_calib.config_file import load_config
from stream_calib.errors import ConfigurationError
from tests.hook_messages import SIGNING_SECRET, hook
from workers.client_checks import check_client_settings

HOOK_URL = "https://hooks.example.com/services/T000/TOPSECRET"
WEBHOOK: dict[str, Any] = {"kind": "webhook", "url": "env:HOOK_URL", "secrets": ["env:HOOK_SECRET"]}


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_URL", HOOK_URL)
    monkeypatch.setenv("HOOK_SECRET", SIGNING_SECRET)


def opened(**settings: Any) -> Any:
    return open_hooks(AlertsSection(hooks=[hook(**settings)]))


def test_a_hook_of_each_kind() -> None:
    kinds: list[dict[str, Any]] = [
        WEBHOOK,
        {"kind": "pagerduty", "secrets": ["env:HOOK_SECRET"]},
        {"kind": "apprise", "url": "env:HOOK_URL"},
        {"kind": "command", "command": ["true"]},
    ]
    sections = [hook(name=str(position), **settings) for position, settings in enumerate(kinds)]
    hooks = open_hooks(AlertsSection(hooks=sections))
    assert [opened.name for opened in hooks] == ["0", "1", "2", "3"]
    for one in hooks:
        assert "TOPSECRET" not in repr(one) + repr(vars(one))
        one.close()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"kind": "webhook", "url": "env:A"}, "a hook of the kind webhook needs secrets"),
        ({"kind": "webhook"}, "needs url and secrets"),
        ({**WEBHOOK, "command": ["x"]}, "a hook of the kind webhook takes no command"),
        ({"kind": "pagerduty"}, "a hook of the kind pagerduty needs secrets"),
        ({"kind": "pagerduty", "secrets": ["env:A", "env:B"]}, "takes one secret, the integration key"),
        ({"kind": "apprise"}, "needs url"),
        ({"kind": "apprise", "url": "env:A", "secrets": ["env:B"]}, "takes no secrets"),
        ({"kind": "command"}, "needs command"),
        ({"kind": "command", "command": ["x"], "allow_private": True, "ca_file": "y"}, "no allow_private and ca_file"),
        ({**WEBHOOK, "name": "with space"}, "pattern"),
    ],
)
def test_what_a_kind_takes(settings: dict[str, Any], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        hook(**settings)


def test_two_hooks_of_one_name() -> None:
    with pytest.raises(ValueError, match="two hooks are called 'ops'"):
        AlertsSection(hooks=[hook(**WEBHOOK), hook(**WEBHOOK)])


@pytest.mark.parametrize(
    "line",
    [
        'url = "https://hooks.example.com/TOPSECRET"',
        'url = ["https://hooks.example.com/TOPSECRET"]',
        'secrets = ["whsec_TOPSECRET"]',
        'secrets = "whsec_TOPSECRET"',
        'proxy = "http://user:TOPSECRET@proxy"',
        "url = 7",
    ],
)
def test_a_secret_that_was_written_into_the_file_is_not_shown(line: str, tmp_path: Path) -> None:
    file = tmp_path / "stream-calib.toml"
    file.write_text(
        '[model]\nname = "m"\n[windows]\nhorizon = "1h"\n[[alerts.hooks]]\nname = "ops"\nkind = "webhook"\n' + line
    )
    with pytest.raises(ConfigurationError, match=r"alerts\.hooks\[0\]\.(url|secrets|proxy)") as caught:
        load_config(file, {})
    assert "TOPSECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({**WEBHOOK, "url": "env:NONE"}, r"alerts\.hooks\.ops\.url = env:NONE: the environment has no variable NONE"),
        ({**WEBHOOK, "url": "file:/none"}, r"alerts\.hooks\.ops\.url = file:/none: cannot be read: .*No such file"),
        ({**WEBHOOK, "url": "env:HOOK_SECRET"}, r"alerts\.hooks\.ops\.url: what is there is no address"),
        ({**WEBHOOK, "secrets": ["env:HOOK_URL"]}, r"ops\.secrets: what is at env:HOOK_URL is no signing secret"),
        ({**WEBHOOK, "ca_file": "/none"}, r"alerts\.hooks\.ops\.ca_file = /none: no certificates can be read"),
        ({**WEBHOOK, "proxy": "env:HOOK_URL"}, r"ops\.proxy: a proxy is spoken to by http://"),
        ({"kind": "pagerduty", "secrets": ["env:EMPTY"]}, r"what is at env:EMPTY is empty"),
        ({"kind": "apprise", "url": "env:HOOK_SECRET"}, r"what is at env:HOOK_SECRET is no address"),
        ({"kind": "apprise", "url": "env:HOOK_URL", "ca_file": "/none"}, r"ops\.ca_file = /none"),
        ({"kind": "apprise", "url": "env:HOOK_URL", "proxy": "env:NONE"}, r"ops\.proxy = env:NONE"),
    ],
)
def test_what_cannot_be_used_is_said_at_the_start(
    settings: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMPTY", "")
    with pytest.raises(ConfigurationError, match=expected) as caught:
        opened(**settings)
    assert "TOPSECRET" not in str(caught.value)
    assert SIGNING_SECRET not in str(caught.value)


@pytest.mark.parametrize("secret", ["whsec_", "whsec_c2hvcnQ=", "whsec_!!!", f"whsec_{'QUFB' * 30}", "QUFB" * 8])
def test_secrets_that_are_none(secret: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_SECRET", secret)
    with pytest.raises(ConfigurationError, match="is no signing secret; it is `whsec_` and the base64 of 24 to 64"):
        opened(**WEBHOOK)


def test_the_signature_of_the_specification() -> None:
    """The example of the libraries of Standard Webhooks."""
    key = base64.b64decode(SIGNING_SECRET.removeprefix("whsec_"))
    given = ("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, b'{"test": 2432232314}')
    expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    assert signatures([key], *given) == expected
    older = signatures([b"x" * 24], *given)
    assert signatures([key, b"x" * 24], *given) == f"{expected} {older}"


def test_a_check_of_the_configuration_looks_at_hooks(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = {"model": {"name": "m"}, "windows": {"horizon": "1h"}, "alerts": {"hooks": [{"name": "ops", **WEBHOOK}]}}
    config = Config.model_validate(raw)
    check_client_settings(config)
    monkeypatch.delenv("HOOK_URL")
    with pytest.raises(ConfigurationError, match="environment has no variable HOOK_URL"):
        check_client_settings(config)
