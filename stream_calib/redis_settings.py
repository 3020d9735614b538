"""From the configuration's section `redis` to the settings of redis-py: what may be passed on, and what may not.

Everything that redis-py would ignore without a word is refused here: an unknown name, TLS settings without TLS, a
database that is not a number.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redis.connection import SSLConnection, UnixDomainSocketConnection, parse_url

from stream_calib.config_connections import RedisSection, read_secrets
from stream_calib.config_values import mask_url
from stream_calib.errors import ConfigurationError

_CONNECT_TIMEOUT_S = 5.0
_SENTINEL_PORT = 26379
_SENTINEL_PREFIX = "sentinel_"

_PASSED_ON: Mapping[str, type] = {
    "username": str,
    "password": str,
    "client_name": str,
    "max_connections": int,
    "health_check_interval": int,
    "socket_connect_timeout": float,
    "socket_keepalive": bool,
    "socket_read_size": int,
    "ssl_ca_certs": str,
    "ssl_ca_path": str,
    "ssl_ca_data": str,
    "ssl_certfile": str,
    "ssl_keyfile": str,
    "ssl_password": str,
    "ssl_cert_reqs": str,
    "ssl_check_hostname": bool,
    "ssl_ciphers": str,
    "ssl_min_version": str,
    "ssl_validate_ocsp": bool,
}
_NOT_IN_A_CLUSTER = ("health_check_interval", "ssl_ciphers", "ssl_min_version", "ssl_validate_ocsp")
"""redis-py's cluster client drops them."""

_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_TLS_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_IN_THE_ADDRESS = "it is part of redis.url"
_IN_RETRIES = "redis.retries says how often a command is sent again"
_STALE = "a replica, or a cache, may answer with what is no longer so"
_REFUSED = {
    "host": _IN_THE_ADDRESS,
    "port": _IN_THE_ADDRESS,
    "db": _IN_THE_ADDRESS,
    "path": _IN_THE_ADDRESS,
    "unix_socket_path": _IN_THE_ADDRESS,
    "ssl": "write rediss:// in redis.url",
    "socket_timeout": "write redis.socket_timeout",
    "timeout": "write redis.socket_timeout",
    "retry": _IN_RETRIES,
    "retry_on_timeout": _IN_RETRIES,
    "retry_on_error": _IN_RETRIES,
    "cluster_error_retry_attempts": _IN_RETRIES,
    "decode_responses": "what is stored is bytes, not text",
    "encoding": "what is stored is bytes, not text",
    "encoding_errors": "what is stored is bytes, not text",
    "protocol": "replies are read in the form of RESP2",
    "legacy_responses": "replies are read in the form of RESP2",
    "single_connection_client": "connections must not be shared",
    "read_from_replicas": _STALE,
    "load_balancing_strategy": _STALE,
    "cache": _STALE,
    "cache_config": _STALE,
}


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """What redis-py's clients are made with. Not for logs: passwords are in it."""

    client: Mapping[str, Any]
    """Keyword arguments of `redis.Redis`, without those of the retries."""
    sentinels: tuple[tuple[str, int], ...]
    """Host and port of each Sentinel; empty without."""
    sentinel_client: Mapping[str, Any]
    """Keyword arguments of the connections with Sentinels."""


def redis_settings(section: RedisSection) -> RedisSettings:
    """Raises ConfigurationError for what cannot be read, is unknown, or would break what this program guarantees.

    Settings named `sentinel_...` in `client` are for the connections with Sentinels: a user and password of their own,
    and TLS where it differs from that of the servers.
    """
    address = _address(section)
    given = {**section.client, **read_secrets(section.client_secrets, "redis")}
    for_sentinels = {n.removeprefix(_SENTINEL_PREFIX): v for n, v in given.items() if n.startswith(_SENTINEL_PREFIX)}
    if for_sentinels and not section.sentinels:
        raise ConfigurationError(
            f"redis.client: {_SENTINEL_PREFIX}{min(for_sentinels)} without redis.sentinels; name the Sentinels there,"
            " or leave it out"
        )
    for_servers = {name: value for name, value in given.items() if not name.startswith(_SENTINEL_PREFIX)}
    for name in for_servers:
        if name in address and name in ("username", "password"):
            raise ConfigurationError(f"redis: the {name} is in redis.url and in redis.client; keep one of them")
    uses_tls = bool(address.get("ssl"))
    sentinel_tls = for_sentinels.pop("ssl", uses_tls)
    if not isinstance(sentinel_tls, bool):
        raise ConfigurationError(f"redis.client: {_SENTINEL_PREFIX}ssl must be true or false")
    common = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": section.socket_timeout_ms / 1000,
        "socket_connect_timeout": min(section.socket_timeout_ms / 1000, _CONNECT_TIMEOUT_S),
        "health_check_interval": 0,
    }
    checked = _checked(for_servers, "", uses_tls=uses_tls)
    if section.cluster:
        for name in _NOT_IN_A_CLUSTER:
            if name in checked:
                raise ConfigurationError(f"redis.client: {name} cannot be used with redis.cluster; leave it out")
    inherited = {n: v for n, v in checked.items() if n.startswith(("ssl_", "socket_"))} if sentinel_tls else {}
    return RedisSettings(
        client={**common, **address, **checked},
        sentinels=tuple(_sentinel(text) for text in section.sentinels),
        sentinel_client={
            **common,
            "ssl": sentinel_tls,
            **inherited,
            **_checked(for_sentinels, _SENTINEL_PREFIX, uses_tls=sentinel_tls),
        },
    )


def _address(section: RedisSection) -> dict[str, Any]:
    """host, port, db, unix_socket_path, ssl, username and password of `redis.url`."""
    shown = mask_url(section.url)
    try:
        parts: dict[str, Any] = parse_url(section.url)
    except ValueError:
        # What it says may quote the part of the address that is wrong, and that may be of a password.
        raise ConfigurationError(
            f"Redis address {shown} cannot be read; write redis://host:port/0, rediss://... or unix:///path"
        ) from None
    kind = parts.pop("connection_class", None)
    query = set(parts) - {"host", "port", "db", "path", "username", "password"}
    if query:
        raise ConfigurationError(
            f"Redis address {shown}: {', '.join(sorted(query))} cannot be set there; write it in redis.client"
        )
    if kind is not UnixDomainSocketConnection and "db" not in parts and _database(section.url):
        raise ConfigurationError(f"Redis address {shown}: what follows the host is not the number of a database")
    if section.cluster and parts.get("db"):
        raise ConfigurationError(f"Redis address {shown}: a Redis Cluster has database 0 only; write no other")
    if kind is UnixDomainSocketConnection and (section.cluster or section.sentinels):
        raise ConfigurationError(
            f"Redis address {shown}: a unix socket cannot be used with cluster or sentinels; write redis:// or rediss://"
        )
    if "path" in parts:
        parts["unix_socket_path"] = parts.pop("path")
    if kind is SSLConnection:
        parts["ssl"] = True
    if section.cluster:
        parts.pop("db", None)
    return parts


def _database(url: str) -> str:
    """What follows host and port in an address, without slashes."""
    return url.partition("://")[2].partition("?")[0].partition("/")[2].strip("/")


def _checked(given: Mapping[str, Any], prefix: str, *, uses_tls: bool) -> dict[str, Any]:
    """The settings as redis-py wants them."""
    found = {}
    for name, value in given.items():
        shown = f"redis.client: {prefix}{name}"
        if name in _REFUSED:
            raise ConfigurationError(f"{shown} cannot be set here: {_REFUSED[name]}")
        wanted = _PASSED_ON.get(name)
        if wanted is None:
            near = difflib.get_close_matches(name, _PASSED_ON, 1)
            hint = f"did you mean {prefix}{near[0]}?" if near else "known are " + ", ".join(sorted(_PASSED_ON))
            raise ConfigurationError(f"{shown} is not a setting of redis-py that can be passed on; {hint}")
        if wanted is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if type(value) is not wanted:
            raise ConfigurationError(f"{shown} must be of type {wanted.__name__}, not {type(value).__name__}")
        if name.startswith("ssl_") and not uses_tls:
            raise ConfigurationError(f"{shown} has no effect without TLS; write rediss:// in redis.url")
        if name in _FILES and not Path(str(value)).exists():
            raise ConfigurationError(f"{shown}: there is no {value}")
        found[name] = _tls_value(shown, name, value)
    return found


def _tls_value(shown: str, name: str, value: Any) -> Any:
    if name == "ssl_min_version":
        if value not in _TLS_VERSIONS:
            raise ConfigurationError(f"{shown} must be one of {', '.join(_TLS_VERSIONS)}")
        return _TLS_VERSIONS[value]
    if name == "ssl_cert_reqs" and value not in ("required", "optional", "none"):
        raise ConfigurationError(f'{shown} must be "required", "optional" or "none"')
    return value


def _sentinel(text: str) -> tuple[str, int]:
    host, separator, port = text.rpartition(":")
    if not separator or (host.startswith("[") and not host.endswith("]")):
        host, port = text, str(_SENTINEL_PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536 or "/" in host or "@" in host:
        raise ConfigurationError(
            "redis.sentinels: each is host:port, as sentinel-1:26379; a password belongs in redis.client_secrets as"
            f" {_SENTINEL_PREFIX}password"
        )
    return host, int(port)
