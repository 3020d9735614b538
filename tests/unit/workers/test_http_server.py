"""The HTTP server over real sockets: metrics, health, further routes, TLS, token, and addresses that do not work."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import trustme
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from stream_calib.config_connections import HttpSection
from stream_calib.errors import ConfigurationError
from workers import http_server
from workers.bearer_token import bearer_token
from workers.health import Health
from workers.http_server import HttpServer
from workers.role import Role, RoleLoop

ANYWHERE = HttpSection(listen="127.0.0.1:0")


def get(url: str, headers: dict[str, str] | None = None, context: ssl.SSLContext | None = None) -> tuple[int, str]:
    # Straight to the server, whatever proxy the environment names.
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])
    )
    try:
        with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=10) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def answered(route: str, code: str) -> float:
    labels = {"route": route, "code": code}
    return REGISTRY.get_sample_value("stream_calib_http_request_seconds_count", labels) or 0.0


def test_metrics_are_served_as_prometheus_reads_them() -> None:
    with HttpServer(ANYWHERE) as server:
        status, text = get(f"http://{server.address}/metrics")
    assert status == 200
    assert "stream_calib_role_ready" in {family.name for family in text_string_to_metric_families(text)}


def test_metrics_are_served_as_openmetrics_to_who_asks_for_it() -> None:
    with HttpServer(ANYWHERE) as server:
        _, text = get(f"http://{server.address}/metrics", {"Accept": "application/openmetrics-text; version=1.0.0"})
    assert text.endswith("# EOF\n")


def test_requests_are_counted_by_route_and_what_nobody_serves_is_one_label() -> None:
    before = answered("/metrics", "200"), answered("other", "404")
    with HttpServer(ANYWHERE) as server:
        get(f"http://{server.address}/metrics")
        assert get(f"http://{server.address}/a")[0] == get(f"http://{server.address}/metrics/b")[0] == 404
    assert (answered("/metrics", "200"), answered("other", "404")) == (before[0] + 1, before[1] + 2)
    assert REGISTRY.get_sample_value("stream_calib_http_request_seconds_count", {"route": "/a", "code": "404"}) is None


async def _fails(request: Request) -> PlainTextResponse:
    raise RuntimeError("bug")


def test_a_route_that_fails_is_answered_and_counted() -> None:
    before = answered("/fails", "500")
    with HttpServer(ANYWHERE, [Route("/fails", _fails)]) as server:
        assert get(f"http://{server.address}/fails")[0] == 500
        assert get(f"http://{server.address}/metrics")[0] == 200
    assert answered("/fails", "500") == before + 1


class Idle(Role):
    name = "refit"

    def open(self) -> None: ...

    def step(self) -> bool:
        return False

    def close(self) -> None: ...


class Loop(RoleLoop):
    """A loop that says what it is told to."""

    def __init__(self, turned_at_s: float, not_ready: str | None) -> None:
        super().__init__(Idle(), threading.Event(), 0.0)
        self.turned_at_s, self.not_ready = turned_at_s, not_ready

    def is_alive(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("turned_at_s", "not_ready", "alive", "ready"),
    [
        (0.0, None, None, None),
        (0.0, "waits: log away", None, "waits: log away"),
        (-4_000.0, None, "has not come round for 4000 s", "has not come round for 4000 s"),
    ],
)
def test_health_and_readiness(turned_at_s: float, not_ready: str | None, alive: str | None, ready: str | None) -> None:
    health = Health([Loop(turned_at_s, not_ready)], threading.Event(), 60.0, lambda: 0.0)
    with HttpServer(ANYWHERE, health.routes()) as server:
        for path, reason in (("/healthz", alive), ("/readyz", ready)):
            status, text = get(f"http://{server.address}{path}")
            assert status == (503 if reason else 200)
            assert json.loads(text) == ({"ok": False, "roles": {"refit": reason}} if reason else {"ok": True})


async def _secret(request: Request) -> PlainTextResponse:
    return PlainTextResponse("open")


def test_a_route_that_asks_for_the_token_opens_to_it_alone(tmp_path: Path) -> None:
    token_file = tmp_path / "token"
    token_file.write_text("s3cret\n")
    http = HttpSection(listen="127.0.0.1:0", token_file=token_file)
    with HttpServer(http, [Route("/v1/x", _secret, middleware=bearer_token(http))]) as server:
        url = f"http://{server.address}/v1/x"
        assert get(url, {"Authorization": "Bearer s3cret"}) == (200, "open")
        assert get(url, {"Authorization": "bearer  s3cret"}) == (200, "open")
        for wrong in (
            {},
            {"Authorization": "Bearer s3cre"},
            {"Authorization": "Basic s3cret"},
            {"Authorization": "s3cret"},
        ):
            status, text = get(url, wrong)
            assert status == 401
            assert "s3cret" not in text
        assert get(f"http://{server.address}/metrics")[0] == 200


def test_without_a_token_file_nobody_is_asked() -> None:
    assert bearer_token(ANYWHERE) == []


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_a_token_file_that_holds_none_is_refused(tmp_path: Path, content: str | None) -> None:
    token_file = tmp_path / "token"
    if content is not None:
        token_file.write_text(content)
    with pytest.raises(ConfigurationError, match=r"http\.token_file = .*(cannot be read|empty)"):
        bearer_token(HttpSection(listen="127.0.0.1:0", token_file=token_file))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(key))
    for pem in issued.cert_chain_pems:
        pem.write_to_path(str(cert), append=True)
    return cert, key


def test_with_a_certificate_only_tls_is_spoken(certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    with HttpServer(HttpSection(listen="127.0.0.1:0", tls_certificate=cert, tls_key=key)) as server:
        context = ssl.create_default_context(cafile=str(cert.with_name("ca.pem")))
        assert get(f"https://{server.address}/metrics", context=context)[0] == 200
        with pytest.raises((urllib.error.URLError, ConnectionError)):
            get(f"http://{server.address}/metrics")


def test_a_certificate_that_cannot_be_used_is_named(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for cert in (wrong, tmp_path / "missing.pem"):
        server = HttpServer(HttpSection(listen="127.0.0.1:0", tls_certificate=cert, tls_key=certificate[1]))
        with pytest.raises(ConfigurationError, match=f"http.tls_certificate = {cert}"):
            server.start()


def test_an_address_that_is_taken_or_not_ours_is_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigurationError, match=rf"http\.listen = {address}: .*in use"):
            HttpServer(HttpSection(listen=address)).start()
    with pytest.raises(ConfigurationError, match="there is no port 99999"):
        HttpServer(HttpSection(listen="127.0.0.1:99999")).start()
    with pytest.raises(ConfigurationError, match="cannot listen there"):
        HttpServer(HttpSection(listen="192.0.2.1:0")).start()


def test_without_a_host_all_addresses_are_listened_on() -> None:
    with HttpServer(HttpSection(listen=":0")) as server:
        assert server.address.startswith("0.0.0.0:")
        port = server.address.rpartition(":")[2]
        assert get(f"http://127.0.0.1:{port}/metrics")[0] == 200


def test_the_port_is_free_again_after_stop() -> None:
    with HttpServer(ANYWHERE) as server:
        address = server.address
    with HttpServer(HttpSection(listen=address)) as again:
        assert again.address == address


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n1"])
def test_who_does_not_send_a_request_is_not_waited_for(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_SEND_WITHIN_S", 0.2)
    with HttpServer(ANYWHERE) as server:
        host, _, port = server.address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            slow.sendall(sent)
            while slow.recv(4_096):  # an answer may come before the body has: nobody takes POST here
                pass
        assert get(f"http://{server.address}/metrics")[0] == 200


async def _slow(request: Request) -> PlainTextResponse:
    await asyncio.sleep(1.0)
    return PlainTextResponse("done")


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "_SEND_WITHIN_S", 0.1)
    with HttpServer(ANYWHERE, [Route("/slow", _slow)]) as server:
        assert get(f"http://{server.address}/slow") == (200, "done")
