"""What of the section `redis` reaches redis-py, and what is refused (redis_settings.py)."""

from __future__ import annotations

import inspect
import ssl
from pathlib import Path
from typing import Any

import pytest
import redis
from redis.cluster import REDIS_ALLOWED_KEYS

from stream_calib import redis_settings as module
from stream_calib.config_connections import RedisSection
from stream_calib.errors import ConfigurationError
from stream_calib.redis_settings import redis_settings


def section(url: str = "redis://localhost", **values: Any) -> RedisSection:
    return RedisSection.model_validate({"url": url, **values})


def client_of(url: str = "redis://localhost", **values: Any) -> dict[str, Any]:
    return dict(redis_settings(section(url, **values)).client)


def refusal(url: str = "redis://localhost", **values: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        redis_settings(section(url, **values))
    return str(caught.value)


def test_an_address_is_taken_apart() -> None:
    found = client_of("rediss://me:p%40ss@server:6380/3")
    assert found["host"], found["port"] == ("server", 6380)
    assert (found["username"], found["password"], found["db"], found["ssl"]) == ("me", "p@ss", 3, True)
    socket = client_of("unix:///run/redis.sock?db=2&password=x")
    assert (socket["unix_socket_path"], socket["db"], socket["password"]) == ("/run/redis.sock", 2, "x")
    assert "ssl" not in client_of()


def test_what_this_program_relies_on_is_always_set() -> None:
    found = client_of(socket_timeout="2s")
    assert (found["protocol"], found["decode_responses"], found["socket_timeout"]) == (2, False, 2.0)
    assert found["socket_connect_timeout"] == 2.0
    assert client_of()["socket_connect_timeout"] == 5.0


def test_settings_and_secrets_are_passed_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    authority, secret = tmp_path / "ca.pem", tmp_path / "password"
    authority.write_text("")
    secret.write_text("hunter2\n")
    monkeypatch.setenv("KEY_PASSWORD", "opens")
    found = client_of(
        "rediss://localhost",
        client={
            "ssl_ca_certs": str(authority),
            "ssl_check_hostname": False,
            "ssl_min_version": "TLSv1.3",
            "socket_connect_timeout": 3,
            "max_connections": 7,
            "username": "me",
        },
        client_secrets={"password": f"file:{secret}", "ssl_password": "env:KEY_PASSWORD"},
    )
    assert found["ssl_ca_certs"] == str(authority)
    assert found["ssl_check_hostname"] is False
    assert found["ssl_min_version"] is ssl.TLSVersion.TLSv1_3
    assert (found["socket_connect_timeout"], found["max_connections"]) == (3.0, 7)
    assert (found["username"], found["password"], found["ssl_password"]) == ("me", "hunter2", "opens")


def test_all_that_may_be_passed_on_is_known_to_the_client_library() -> None:
    known = set(inspect.signature(redis.Redis).parameters)
    assert set(module._PASSED_ON) <= known
    assert set(module._PASSED_ON) - set(REDIS_ALLOWED_KEYS) == set(module._NOT_IN_A_CLUSTER)
    assert not set(module._PASSED_ON) & set(module._REFUSED)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"decode_responses": True}, "what is stored is bytes"),
        ({"protocol": 3}, "RESP2"),
        ({"retry_on_timeout": True}, r"redis.retries"),
        ({"socket_timeout": 3}, "redis.socket_timeout"),
        ({"db": 1}, "part of redis.url"),
        ({"read_from_replicas": True}, "no longer so"),
        ({"ssl": True}, "rediss://"),
        ({"clientname": "x"}, "did you mean client_name?"),
        ({"zzz": "x"}, "known are client_name"),
        ({"max_connections": "7"}, "must be of type int, not str"),
        ({"max_connections": True}, "must be of type int, not bool"),
        ({"socket_keepalive": 1}, "must be of type bool"),
        ({"ssl_ca_certs": "/etc/ca.pem"}, "no effect without TLS; write rediss://"),
        ({"sentinel_username": "x"}, "without redis.sentinels"),
    ],
)
def test_settings_that_cannot_be_passed_on_are_refused(client: dict[str, Any], said: str) -> None:
    assert said in refusal(client=client)


@pytest.mark.parametrize(
    ("client", "said"),
    [
        ({"ssl_ca_certs": "/no/such/ca.pem"}, "there is no /no/such/ca.pem"),
        ({"ssl_min_version": "SSLv3"}, "one of TLSv1.2, TLSv1.3"),
        ({"ssl_cert_reqs": "perhaps"}, '"required", "optional" or "none"'),
    ],
)
def test_tls_settings_are_looked_at(client: dict[str, Any], said: str) -> None:
    assert said in refusal("rediss://localhost", client=client)


@pytest.mark.parametrize("name", ["health_check_interval", "ssl_ciphers", "ssl_min_version", "ssl_validate_ocsp"])
def test_what_the_cluster_client_would_drop_without_a_word_is_refused(name: str) -> None:
    value = {"health_check_interval": 5, "ssl_ciphers": "x", "ssl_min_version": "TLSv1.3", "ssl_validate_ocsp": True}
    one = {name: value[name]}
    assert client_of("rediss://localhost", client=one)[name]
    assert "cannot be used with redis.cluster" in refusal("rediss://localhost", cluster=True, client=one)


@pytest.mark.parametrize(
    ("url", "values", "said"),
    [
        ("redis://localhost/1", {"cluster": True}, "database 0 only"),
        ("unix:///s", {"cluster": True}, "unix socket cannot be used"),
        ("unix:///s", {"sentinels": ["a:1"]}, "unix socket cannot be used"),
        ("redis://localhost/first", {}, "not the number of a database"),
        ("redis://localhost?decode_responses=true", {}, "decode_responses cannot be set there"),
        ("redis://localhost?protocol=3", {}, "protocol cannot be set there"),
        ("redis://:one@localhost", {"client_secrets": {"password": "env:PATH"}}, "password is in redis.url and in"),
    ],
)
def test_addresses_that_do_not_fit_are_refused(url: str, values: dict[str, Any], said: str) -> None:
    found = refusal(url, **values)
    assert said in found
    assert "one@" not in found


def test_sentinels_are_host_and_port_with_their_own_user() -> None:
    found = redis_settings(
        section(
            "redis://me:secret@ignored/2",
            sentinels=["a:1234", "b", "[::1]:77", "[fe80::1]"],
            client={"sentinel_username": "watcher"},
        )
    )
    assert found.sentinels == (("a", 1234), ("b", 26379), ("::1", 77), ("fe80::1", 26379))
    assert found.sentinel_client["username"] == "watcher"
    assert "password" not in found.sentinel_client
    assert (found.client["username"], found.client["db"]) == ("me", 2)
    assert "db" not in found.sentinel_client


def test_sentinels_speak_tls_as_the_servers_do_unless_told_otherwise() -> None:
    servers = {"ssl_check_hostname": False}
    same = redis_settings(section("rediss://x", sentinels=["a"], client=servers)).sentinel_client
    assert (same["ssl"], same["ssl_check_hostname"]) == (True, False)
    plain = redis_settings(section("rediss://x", sentinels=["a"], client={**servers, "sentinel_ssl": False}))
    assert plain.sentinel_client["ssl"] is False
    assert "ssl_check_hostname" not in plain.sentinel_client
    own = section("rediss://x", sentinels=["a"], client={**servers, "sentinel_ssl_check_hostname": True})
    assert redis_settings(own).sentinel_client["ssl_check_hostname"] is True


@pytest.mark.parametrize("text", [":26379", "a:", "a:0", "a:70000", "a:b", "me:secret@a:1", "redis://a:1", ""])
def test_sentinels_that_cannot_be_read_are_refused_without_being_shown(text: str) -> None:
    found = refusal(sentinels=[text])
    assert "host:port" in found
    assert "secret@" not in found
