"""Addresses of receivers: what is read, where they lead, what is refused."""

from __future__ import annotations

import ipaddress
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_calib.alerts.hooks.addresses import HttpAddress, endpoints, http_address, is_public
from stream_calib.errors import ConfigurationError, HookAddressError


def test_an_address_in_parts() -> None:
    address = HttpAddress.parse("https://Hooks.Example.com/a%20b/c?key=v#part")
    assert (address.tls, address.host, address.port) == (True, "hooks.example.com", 443)
    assert address.target == "/a%20b/c?key=v"
    assert address.authority == "hooks.example.com"
    assert address.authorization is None


def test_user_and_password_become_the_header() -> None:
    address = HttpAddress.parse("http://user:p%40ss@[::1]:8080")
    assert address.authorization == "Basic dXNlcjpwQHNz"
    assert (address.host, address.target, address.authority) == ("::1", "/", "[::1]:8080")
    assert {"user:p@ss", "p@ss", "dXNlcjpwQHNz"} <= set(address.secrets)


def test_what_may_be_a_key_is_not_in_its_representation() -> None:
    address = HttpAddress.parse("https://user:password@example.com/services/TOPSECRET?token=HIDDEN")
    assert "example.com" in repr(address)
    assert not any(key in repr(address) for key in ("TOPSECRET", "HIDDEN", "password", "Basic"))
    assert {"TOPSECRET", "/services/TOPSECRET?token=HIDDEN"} <= set(address.secrets)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.com/path",
        "ftp://example.com",
        "file:///etc/passwd",
        "https://",
        "https://example.com/a b",
        "https://example.com/\r\nX-Header: 1",
        "https://example.com/päth",
        "https://example.com:99999/",
        "https://[::1/",
        f"https://{'a' * 64}.com/",
    ],
)
def test_what_is_no_address_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"alerts\.hooks\.ops\.url: what is there is no address") as caught:
        http_address(text, "alerts.hooks.ops.url")
    assert len(text) < 10 or text not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("location", "same"),
    [
        ("/other?x=1", True),
        ("other", True),
        ("https://example.com/", True),
        ("http://example.com:80/", True),
        ("http://example.com:8080/", False),
        ("https://example.com:8443/", False),
        ("http://example.org/", False),
        ("//example.org/", False),
    ],
)
def test_redirects_that_stay_with_the_receiver(location: str, same: bool) -> None:
    address = HttpAddress.parse("http://example.com/hook")
    assert address.is_same_receiver(address.redirected(location)) is same


def test_a_redirect_never_leaves_tls_and_keeps_the_user() -> None:
    address = HttpAddress.parse("https://user:pw@example.com/hook")
    assert not address.is_same_receiver(address.redirected("http://example.com/hook"))
    assert address.redirected("/else").authorization == address.authorization
    with pytest.raises(ValueError, match="must not name a user"):
        address.redirected("https://other:pw@example.com/")
    with pytest.raises(ValueError, match="not an address"):
        address.redirected("file:///etc/passwd")


@pytest.mark.parametrize(
    "address",
    [
        *(
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "100.64.0.1",
            "169.254.169.254",
            "0.0.0.0",
            "224.0.0.1",
        ),
        *("255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1"),
        *(
            "::ffff:127.0.0.1",
            "::ffff:a9fe:a9fe",
            "64:ff9b::7f00:1",
            "64:ff9b::169.254.169.254",
            "2002:7f00:1::",
            "::127.0.0.1",
            "2001::1",
            "4000::1",
        ),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize(
    "address", ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::8.8.8.8"]
)
def test_addresses_that_are_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses(v=4))
def test_what_stands_for_another_address_is_judged_by_that_one(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    mapped = ipaddress.IPv6Address((0xFFFF << 32) | number)
    translated = ipaddress.IPv6Address((0x64FF9B << 96) | number)
    assert is_public(str(mapped)) == is_public(str(translated)) == is_public(str(address))


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Name -> the addresses it leads to, one list a question."""
    leads: dict[str, list[str]] = {}

    def ask(host: str, port: int, **_: Any) -> list[Any]:
        if host not in leads:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in leads[host]]

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    return leads


def test_private_addresses_are_left_out(names: dict[str, list[str]]) -> None:
    names["mixed.example"] = ["10.0.0.1", "8.8.8.8", "127.0.0.1"]
    found = endpoints("mixed.example", 443, allow_private=False, timeout_s=5)
    assert [endpoint.address for endpoint in found] == [("8.8.8.8", 443)]
    assert len(endpoints("mixed.example", 443, allow_private=True, timeout_s=5)) == 3


def test_a_name_that_leads_to_private_addresses_only_is_refused(names: dict[str, list[str]]) -> None:
    names["inside.example"] = ["169.254.169.254"]
    with pytest.raises(HookAddressError, match=r"inside\.example leads to a private address \(169\.254\.169\.254\)"):
        endpoints("inside.example", 80, allow_private=False, timeout_s=5)


def test_a_name_that_leads_nowhere(names: dict[str, list[str]]) -> None:
    with pytest.raises(socket.gaierror, match="not known"):
        endpoints("none.example", 80, allow_private=False, timeout_s=5)


@pytest.fixture
def hanging_resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    over = threading.Event()

    def ask(*_: Any, **__: Any) -> list[Any]:
        over.wait(30)
        return []

    monkeypatch.setattr(socket, "getaddrinfo", ask)
    yield
    over.set()


@pytest.mark.usefixtures("hanging_resolver")
def test_a_resolver_that_hangs_holds_nobody_up() -> None:
    with pytest.raises(TimeoutError, match=r"slow\.example was not resolved in time"):
        endpoints("slow.example", 80, allow_private=False, timeout_s=0.05)


_NEAR_ASCII = st.characters(max_codepoint=130)
_URLS = st.one_of(
    st.text(max_size=40),
    st.builds(
        "{}://{}/{}".format, st.sampled_from(["http", "https", "HTTP"]), st.text(max_size=20), st.text(max_size=20)
    ),
)


@given(_URLS)
def test_whatever_is_written_or_answered_goes_into_no_second_header(text: str) -> None:
    for read in (HttpAddress.parse, HttpAddress.parse("https://example.com/hook").redirected):
        try:
            address = read(text)
        except ValueError:
            continue
        for part in (address.host, address.target, address.authority, address.authorization or ""):
            assert part.isascii()
            assert part.isprintable()
        assert " " not in address.target + address.authority
        assert address.target.startswith("/")
