"""The one way in which hooks speak HTTP: bounded in time and size, certificates checked, led nowhere else.

Proxies are those that the hook names, never the environment's. With a proxy it is the proxy that resolves names, and
so it decides what may be reached by name; addresses that are written as numbers are checked here all the same.
"""

from __future__ import annotations

import http.client
import ipaddress
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from stream_calib.alerts.hooks.addresses import Endpoint, HttpAddress, endpoints, http_address, is_public
from stream_calib.alerts.hooks.http_exchange import Answer, Deadline, Exchange
from stream_calib.alerts.hooks.port import Delivery
from stream_calib.alerts.hooks.retrying import is_for_good, retry_after_s
from stream_calib.config_alerts import HookSection
from stream_calib.config_secrets import read_secret
from stream_calib.errors import ConfigurationError, HookAddressError

_MAX_REDIRECTS = 3
_KEEP_METHOD = (307, 308)
"""The redirects after which a POST is still a POST."""
_MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class _Post:
    headers: Mapping[str, str]
    body: bytes
    proxy: HttpAddress | None
    deadline: Deadline
    hidden: Sequence[str]
    """What is not shown of texts that come from others."""


class HttpClient:
    """POSTs of one hook."""

    def __init__(self, hook: HookSection, clock_s: Callable[[], float]) -> None:
        """`clock_s`: epoch seconds, for answers that say when to come again. Raises ConfigurationError where the file
        of certificates or the proxy's address cannot be used."""
        self._hook = hook
        self._clock_s = clock_s
        self._timeout_s = hook.timeout_ms / 1000
        self._tls = trust_of(hook)
        proxy_of(hook)

    def deadline(self) -> Deadline:
        """For one attempt, of however many requests, from now on."""
        return Deadline(self._timeout_s)

    def post(
        self,
        address: HttpAddress,
        headers: Mapping[str, str],
        body: bytes,
        deadline: Deadline,
        secrets: Sequence[str],
    ) -> Delivery:
        """One request. `secrets`: what the receiver was told and must not be shown, beside the address."""
        try:
            proxy = proxy_of(self._hook)
        except ConfigurationError as error:  # the place holds something else now
            return Delivery("retry", str(error))
        hidden = [*address.secrets, *(proxy.secrets if proxy else []), *secrets]
        return self._tried(address, _Post(headers, body, proxy, deadline, hidden))

    def _tried(self, address: HttpAddress, post: _Post) -> Delivery:
        try:
            answer = self._follow(address, post)
        except HookAddressError as error:
            return Delivery("retry", str(error))
        except TimeoutError:
            return Delivery("retry", f"no answer from {address.host} within {self._timeout_s:g} s")
        except ssl.SSLCertVerificationError as error:
            return Delivery(
                "retry",
                f"the certificate of {address.host} is not trusted: {error.verify_message};"
                " where its authority is your own, name it in ca_file",
            )
        except OSError as error:
            why = error.strerror or "the connection was closed without an answer"
            return Delivery("retry", f"{address.host} could not be spoken to: {why}")
        except http.client.HTTPException as error:
            return Delivery("retry", f"the answer of {address.host} cannot be read ({type(error).__name__})")
        return self._judged(address, answer, post)

    def _follow(self, address: HttpAddress, post: _Post) -> Answer:
        for _ in range(_MAX_REDIRECTS + 1):
            answer = self._once(address, post)
            if answer.status not in _KEEP_METHOD or answer.location is None:
                return answer
            address = self._next(address, answer.location, post)
        raise HookAddressError(f"{address.host} redirects more than {_MAX_REDIRECTS} times; correct url")

    def _next(self, address: HttpAddress, location: str, post: _Post) -> HttpAddress:
        try:
            there = address.redirected(location)
        except ValueError:  # its message may hold what was answered
            raise HookAddressError(f"{address.host} redirects to what is no address of HTTP") from None
        if not address.is_same_receiver(there):
            raise HookAddressError(
                f"{address.host} redirects to {there.scheme}://{without(there.authority, post.hidden)}, which is not"
                " followed; where that is right, put the new address into url"
            )
        return there

    def _once(self, address: HttpAddress, post: _Post) -> Answer:
        found = self._endpoints(address, post)
        target, headers, proxy = address.target, dict(post.headers), post.proxy
        with Exchange(found, post.deadline, self._timeout_s / 2 / min(len(found), 4)) as exchange:
            if proxy is not None and address.tls:
                exchange.tunnel(address, proxy.authorization)
            elif proxy is not None:
                target = f"http://{address.authority}{address.target}"
                headers |= {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {}
            if address.tls:
                exchange.secure(self._tls, address.host)
            return exchange.post(address, target, headers, post.body)

    def _endpoints(self, address: HttpAddress, post: _Post) -> list[Endpoint]:
        allowed, left_s, proxy = self._hook.allow_private, post.deadline.left_s(), post.proxy
        if proxy is None:
            return endpoints(address.host, address.port, allow_private=allowed, timeout_s=left_s)
        if not allowed and _is_number(address.host) and not is_public(address.host):
            raise HookAddressError(f"{address.host} is a private address, which is refused; see allow_private")
        return endpoints(proxy.host, proxy.port, allow_private=True, timeout_s=left_s)

    def _judged(self, address: HttpAddress, answer: Answer, post: _Post) -> Delivery:
        if 200 <= answer.status < 300:
            return Delivery("delivered", f"{address.host} answered {answer.status}")
        said = one_line(without(answer.text, post.hidden))
        detail = f"{address.host} answered {answer.status}" + (f": {said}" if said else "")
        if 300 <= answer.status < 400:
            detail += "; this kind of redirect is not followed, put the new address into url"
        if is_for_good(answer.status):
            return Delivery("rejected", detail)
        return Delivery("retry", detail, retry_after_s(answer.retry_after, self._clock_s()))


def without(text: str, secrets: Sequence[str]) -> str:
    """The text, with stars in the place of secrets."""
    for secret in sorted({secret for secret in secrets if len(secret) > 1}, key=len, reverse=True):
        text = text.replace(secret, "***")
    return text


def one_line(text: str) -> str:
    """The beginning of what somebody else says, without control characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_SHOWN else f"{line[:_MAX_SHOWN]}..."


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def trust_of(hook: HookSection) -> ssl.SSLContext:
    """Who may vouch for receivers. Raises ConfigurationError where the file of certificates cannot be read."""
    try:
        return ssl.create_default_context(cafile=hook.ca_file)
    except OSError as error:
        raise ConfigurationError(
            f"alerts.hooks.{hook.name}.ca_file = {hook.ca_file}: no certificates can be read from it: {error}"
        ) from error


def proxy_of(hook: HookSection) -> HttpAddress | None:
    """Raises ConfigurationError where it cannot be read, or is no address of a proxy."""
    if hook.proxy is None:
        return None
    setting = f"alerts.hooks.{hook.name}.proxy"
    proxy = http_address(read_secret(hook.proxy, setting), setting)
    if proxy.tls:
        raise ConfigurationError(f"{setting}: a proxy is spoken to by http://; the receiver's TLS goes through it")
    return proxy
