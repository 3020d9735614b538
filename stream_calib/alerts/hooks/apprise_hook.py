"""Slack, e-mail and the rest, through Apprise (apprise_process.py)."""

from __future__ import annotations

import json
import os
import ssl
import sys
from typing import Any

from stream_calib.alerts.hooks.command import cleaned
from stream_calib.alerts.hooks.http_client import proxy_of, trust_of
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.hooks.process import Ended, run
from stream_calib.alerts.hooks.texts import as_html, plain, title, worst
from stream_calib.config_alerts import HookSection
from stream_calib.config_secrets import read_secret
from stream_calib.errors import ConfigurationError

_PROGRAM = "stream_calib.alerts.hooks.apprise_process"
_LEVELS = {"info": "info", "warning": "warning", "critical": "failure"}
_MAX_OUTPUT_BYTES = 10_000


class AppriseHook:
    """One message at a time, each in a process of its own."""

    def __init__(self, hook: HookSection, runbook_url: str) -> None:
        """Raises ConfigurationError where a secret or the file of certificates cannot be used."""
        assert hook.url is not None
        self._hook, self._runbook_url, self._url_place = hook, runbook_url, hook.url
        self._url()
        proxy_of(hook)
        trust_of(hook)

    @property
    def name(self) -> str:
        return self._hook.name

    def send(self, message: Message) -> Delivery:
        timeout_s = self._hook.timeout_ms / 1000
        try:
            given = self._given(message)
        except ConfigurationError as error:
            return Delivery("retry", str(error))
        try:
            ended = run(
                [sys.executable, "-W", "ignore", "-m", _PROGRAM],
                json.dumps(given).encode(),
                self._environment(),
                timeout_s,
                max_output_bytes=_MAX_OUTPUT_BYTES,
            )
        except OSError as error:
            return Delivery("retry", f"the process that sends cannot be started: {error.strerror}")
        if ended.status is None:
            return Delivery("retry", f"no answer within {timeout_s:g} s")
        return _delivery(ended)

    def close(self) -> None:
        """No process is left between attempts."""

    def _given(self, message: Message) -> dict[str, Any]:
        return {
            "url": self._url(),
            "title": title(message),
            "texts": {
                "text": plain(message, self._runbook_url),
                "html": as_html(message, self._runbook_url),
            },
            "level": "success" if message.alerts[-1].state == "close" else _LEVELS[worst(message)],
            "allow_private": self._hook.allow_private,
            "proxy": None if self._hook.proxy is None else read_secret(self._hook.proxy, self._setting("proxy")),
        }

    def _environment(self) -> dict[str, str]:
        """What its libraries take their settings from."""
        environment = cleaned(os.environ)
        # It finds what this process finds; from Python 3.11 on nothing of the folder that it is started in.
        environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
        if authorities := self._hook.ca_file or ssl.get_default_verify_paths().cafile:
            environment |= {"REQUESTS_CA_BUNDLE": authorities, "SSL_CERT_FILE": authorities}
        return environment

    def _url(self) -> str:
        url = read_secret(self._url_place, self._setting("url"))
        if "://" not in url:
            raise ConfigurationError(
                f"{self._setting('url')}: what is at {self._url_place} is no address; write one as Apprise knows it,"
                " https://appriseit.com"
            )
        return url

    def _setting(self, key: str) -> str:
        return f"alerts.hooks.{self.name}.{key}"


def _delivery(ended: Ended) -> Delivery:
    """What the process said. What it may have written beside it is not shown: it knows the address."""
    try:
        return Delivery(**json.loads(ended.output.rpartition(b"\n")[2]))
    except (ValueError, TypeError):
        return Delivery("retry", f"the process that sends failed with status {ended.status}")
