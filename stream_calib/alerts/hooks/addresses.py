"""Addresses of receivers: what is written, and where it leads to.

Names are resolved once and the addresses that were checked are those that are connected to: a name that leads somewhere
else the next time it is asked for (DNS rebinding) gains nothing.
"""

from __future__ import annotations

import base64
import ipaddress
import queue
import re
import socket
import threading
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from urllib.parse import unquote, urljoin, urlsplit

from stream_calib.errors import ConfigurationError, HookAddressError

_DEFAULT_PORTS = {"http": 80, "https": 443}
_PRINTABLE = re.compile(r"[\x21-\x7e]+")
_LEAST_KEY = 8
"""Characters; shorter parts of a path are words like `hooks`."""


@dataclass(frozen=True, slots=True)
class HttpAddress:
    """An address of HTTP; all but the host may hold keys, and is not shown."""

    tls: bool
    host: str
    """In ASCII."""
    port: int
    target: str = field(repr=False)
    """Path and query."""
    authorization: str | None = field(repr=False)
    """Header that says user and password."""

    @classmethod
    def parse(cls, text: str) -> HttpAddress:
        """Raises ValueError, which does not show the text."""
        parts = urlsplit(text)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or not _PRINTABLE.fullmatch(text):
            raise ValueError("not an address of HTTP")
        host = parts.hostname.encode("idna").decode("ascii")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        user = None
        if parts.username is not None:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            user = f"Basic {base64.b64encode(pair.encode()).decode()}"
        return cls(parts.scheme == "https", host, parts.port or _DEFAULT_PORTS[parts.scheme], target, user)

    @property
    def secrets(self) -> list[str]:
        """Texts of which each may be a key, or hold one."""
        parts = [part for part in re.split(r"[/?&=]", self.target) if len(part) >= _LEAST_KEY]
        if self.authorization is None:
            return [self.target, *parts]
        encoded = self.authorization.partition(" ")[2]
        user = base64.b64decode(encoded).decode()
        return [self.target, *parts, encoded, user, user.partition(":")[2]]

    @property
    def authority(self) -> str:
        """Host and port as the header `Host` has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def scheme(self) -> str:
        return "https" if self.tls else "http"

    def redirected(self, location: str) -> HttpAddress:
        """Where an answer's `Location` leads. Raises ValueError where it is none of HTTP, or of user and password."""
        there = HttpAddress.parse(urljoin(f"{self.scheme}://{self.authority}{self.target}", location))
        if there.authorization is not None:
            raise ValueError("a redirect must not name a user")
        return HttpAddress(there.tls, there.host, there.port, there.target, self.authorization)

    def is_same_receiver(self, other: HttpAddress) -> bool:
        """The same host and port, or the same host by TLS instead of without."""
        if self.host != other.host:
            return False
        return (self.tls, self.port) == (other.tls, other.port) or (
            (self.tls, self.port) == (False, 80) and (other.tls, other.port) == (True, 443)
        )


def http_address(text: str, setting: str) -> HttpAddress:
    """Raises ConfigurationError, which names the setting and does not show the text."""
    try:
        return HttpAddress.parse(text)
    except ValueError:  # its message may hold what was written
        raise ConfigurationError(
            f"{setting}: what is there is no address; write https://host/path, other characters as %XX"
        ) from None


class Endpoint(NamedTuple):
    """What a socket is made of and connects to."""

    family: int
    address: Any
    """As `socket.connect` takes it."""


def endpoints(host: str, port: int, *, allow_private: bool, timeout_s: float) -> list[Endpoint]:
    """What the name leads to, in the resolver's order.

    Raises HookAddressError where all of it is private and that is not allowed, TimeoutError, and OSError (`gaierror`)
    where the name leads nowhere.
    """
    found = [Endpoint(family, address) for family, _, _, _, address in _resolve(host, port, timeout_s)]
    allowed = [endpoint for endpoint in found if allow_private or is_public(str(endpoint.address[0]))]
    if not allowed:
        raise HookAddressError(
            f"{host} leads to a private address ({found[0].address[0]}), which is refused; set allow_private = true"
            " where that is meant"
        )
    return allowed


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public network; also of what it stands for, where it holds another one."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address):
        for inner in (ip.ipv4_mapped, ip.sixtofour, _of_nat64(ip)):
            if inner is not None:
                return is_public(str(inner))
        if ip not in _GLOBAL_UNICAST:
            return False
    return ip.is_global and not ip.is_multicast


def _of_nat64(ip: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The address behind a translator (RFC 6052, 64:ff9b::/96)."""
    return ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF) if ip in _NAT64 else None


_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_GLOBAL_UNICAST = ipaddress.IPv6Network("2000::/3")  # RFC 4291, 2.4; what else there is stands for something local


def _resolve(host: str, port: int, timeout_s: float) -> list[Any]:
    """In a thread of its own, because a resolver cannot be told how long it may take."""
    answers: queue.SimpleQueue[list[Any] | OSError] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answers.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except OSError as error:
            answers.put(error)

    threading.Thread(target=ask, name=f"resolve {host}", daemon=True).start()
    try:
        answer = answers.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError(f"the name {host} was not resolved in time") from None
    if isinstance(answer, OSError):
        raise answer
    return answer
