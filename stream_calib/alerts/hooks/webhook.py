"""The signed webhook, by the scheme of Standard Webhooks (standardwebhooks.com, specification 1.0.0).

Signed is `<id>.<timestamp>.<body>`, by HMAC-SHA256 under each secret: a receiver checks the signature by one of the
secrets that it knows, refuses timestamps that are minutes off, and knows a repeat by the id.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Sequence

from stream_calib.alerts.hooks.addresses import HttpAddress, http_address
from stream_calib.alerts.hooks.document import message_document
from stream_calib.alerts.hooks.http_client import HttpClient
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.config_alerts import HookSection
from stream_calib.config_secrets import read_secret
from stream_calib.errors import ConfigurationError

_PREFIX = "whsec_"
_LEAST_BYTES, _MOST_BYTES = 24, 64
"""Of a secret, by the specification."""


def signatures(secrets: Sequence[bytes], message_id: str, timestamp_s: int, body: bytes) -> str:
    """The header `webhook-signature`: one signature for each secret, in their order."""
    signed = f"{message_id}.{timestamp_s}.".encode() + body
    return " ".join(
        f"v1,{base64.b64encode(hmac.new(secret, signed, hashlib.sha256).digest()).decode()}" for secret in secrets
    )


class WebhookHook:
    """See the module. Places of secrets are read at each attempt, so a rotated file holds from the next one on."""

    def __init__(self, hook: HookSection, runbook_url: str, client: HttpClient, clock_s: Callable[[], float]) -> None:
        """`clock_s`: epoch seconds. Raises ConfigurationError where address or secrets cannot be used."""
        assert hook.url is not None
        self._hook, self._runbook_url, self._client, self._clock_s = hook, runbook_url, client, clock_s
        self._url_place = hook.url
        self._address()
        self._secrets()

    @property
    def name(self) -> str:
        return self._hook.name

    def send(self, message: Message) -> Delivery:
        try:
            address, texts = self._address(), self._secrets()
        except ConfigurationError as error:
            return Delivery("retry", str(error))
        body = message_document(message, self._runbook_url)
        now_s = int(self._clock_s())
        headers = {
            "Content-Type": "application/json",
            "webhook-id": message.id,
            "webhook-timestamp": str(now_s),
            "webhook-signature": signatures([_key(text) for text in texts], message.id, now_s, body),
        }
        hidden = [*texts, *(text.removeprefix(_PREFIX) for text in texts)]
        return self._client.post(address, headers, body, self._client.deadline(), hidden)

    def close(self) -> None:
        """Nothing is kept between attempts."""

    def _address(self) -> HttpAddress:
        setting = f"alerts.hooks.{self.name}.url"
        return http_address(read_secret(self._url_place, setting), setting)

    def _secrets(self) -> list[str]:
        setting = f"alerts.hooks.{self.name}.secrets"
        texts = [read_secret(place, setting) for place in self._hook.secrets]
        for place, text in zip(self._hook.secrets, texts, strict=True):
            if not _LEAST_BYTES <= len(_key(text)) <= _MOST_BYTES:
                raise ConfigurationError(
                    f"{setting}: what is at {place} is no signing secret; it is `{_PREFIX}` and the base64 of"
                    f" {_LEAST_BYTES} to {_MOST_BYTES} random bytes"
                )
        return texts


def _key(text: str) -> bytes:
    """The bytes of a secret; none where it is not of the form."""
    if not text.startswith(_PREFIX):
        return b""
    try:
        return base64.b64decode(text.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return b""
