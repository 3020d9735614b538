"""A program of this machine, given the message as JSON on its input."""

from __future__ import annotations

import os
from collections.abc import Mapping

from stream_calib.alerts.hooks.document import message_document
from stream_calib.alerts.hooks.http_client import one_line
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.alerts.hooks.process import run
from stream_calib.config_alerts import HookSection

_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TZ")
"""Of the environment; the rest of it may hold the secrets of the role."""
_MAX_OUTPUT_BYTES = 10_000


class CommandHook:
    """Exit status 0 is delivered, everything else is tried again."""

    def __init__(self, hook: HookSection, runbook_url: str) -> None:
        self._hook, self._runbook_url = hook, runbook_url

    @property
    def name(self) -> str:
        return self._hook.name

    def send(self, message: Message) -> Delivery:
        program, timeout_s = self._hook.command[0], self._hook.timeout_ms / 1000
        document = message_document(message, self._runbook_url)
        try:
            ended = run(
                self._hook.command, document, cleaned(os.environ), timeout_s, max_output_bytes=_MAX_OUTPUT_BYTES
            )
        except OSError as error:
            return Delivery("retry", f"{program}: {error.strerror}")
        said = one_line(ended.output.decode("utf-8", "replace"))
        if ended.status == 0:
            return Delivery("delivered", f"{program} ended with status 0")
        how = f"did not end within {timeout_s:g} s" if ended.status is None else f"ended with status {ended.status}"
        return Delivery("retry", f"{program} {how}" + (f": {said}" if said else ""))

    def close(self) -> None:
        """No process is left between attempts."""


def cleaned(environment: Mapping[str, str]) -> dict[str, str]:
    """What a program of others may know of the environment."""
    return {name: environment[name] for name in _PASSED_ON if name in environment}
