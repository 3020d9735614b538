"""Hooks against real receivers: HTTP, TLS, proxies and mail, as they are, fail, hang, redirect and die.

Whatever a test lets a hook say (its results, logs, standard output and error) is searched for the secrets it was given.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import logging
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from email import message_from_bytes, policy
from pathlib import Path
from typing import Any

import apprise
import pytest
import trustme

from stream_calib.alerts.hooks.opening import open_hooks
from stream_calib.alerts.hooks.port import Delivery, Message
from stream_calib.config_alerts import AlertsSection
from tests.hook_messages import SIGNING_SECRET, alert, hook, message
from tests.hook_receiver import HookReceiver
from tests.mail_receiver import MailReceiver

NEW_SECRET = "whsec_bmV3IHNlY3JldCBvZiAzMiBieXRlcyBvciBtb3JlIQ=="
KEY = "INTEGRATIONKEY0123456789"
TOKEN = "TOKENINTHEADDRESS"
PASSWORD = "PASSWORDOFTHEUSER"
SECRETS = {SIGNING_SECRET, SIGNING_SECRET[6:], NEW_SECRET[6:], KEY, TOKEN, PASSWORD}
NOW_S = 1_614_265_330.0


class Ops:
    """Sends through hooks whose secrets are in the environment, and keeps what they say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said: list[str] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setenv("SIGNING_SECRET", SIGNING_SECRET)
        monkeypatch.setenv("NEW_SECRET", NEW_SECRET)
        monkeypatch.setenv("KEY", KEY)

    def send(self, given: Message, *, times: int = 1, **settings: Any) -> Delivery:
        (opened,) = open_hooks(AlertsSection(hooks=[self.section(**settings)]), lambda: NOW_S)
        for _ in range(times):
            delivery = opened.send(given)
            self.said += [delivery.detail, repr(opened), repr(vars(opened))]
        opened.close()
        return delivery

    def section(self, **settings: Any) -> Any:
        """`url` and `proxy`: themselves, not their places."""
        for name in ("url", "proxy"):
            if name in settings:
                self._monkeypatch.setenv(name.upper(), settings[name])
                settings[name] = f"env:{name.upper()}"
        return hook(**settings)

    def webhook(self, url: str, given: Message | None = None, **settings: Any) -> Delivery:
        known: dict[str, Any] = {"secrets": ["env:SIGNING_SECRET"], "allow_private": True, "timeout": "10s"}
        return self.send(given or message(), kind="webhook", url=url, **{**known, **settings})

    def apprise(self, url: str, given: Message | None = None, **settings: Any) -> Delivery:
        known: dict[str, Any] = {"allow_private": True, "timeout": "60s"}
        return self.send(given or message(), kind="apprise", url=url, **{**known, **settings})


@pytest.fixture
def ops(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[Ops]:
    caplog.set_level(logging.DEBUG)
    ops = Ops(monkeypatch)
    yield ops
    told = "\n".join([*ops.said, caplog.text, *capfd.readouterr()])
    assert len(ops.said) >= 1
    assert [secret for secret in SECRETS if secret in told] == []


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HookReceiver]:
    with HookReceiver(tmp_path_factory.mktemp("receiver")) as running:
        yield running


# --- webhooks


def test_a_signed_webhook_can_be_checked_by_either_secret(ops: Ops, receiver: HookReceiver) -> None:
    given = message()
    delivery = ops.webhook(
        receiver.url(f"/ok?token={TOKEN}"), given, secrets=["env:NEW_SECRET", "env:SIGNING_SECRET"], times=2
    )
    assert delivery == Delivery("delivered", "127.0.0.1 answered 200")
    first, second = receiver.received()[-2:]
    assert first.path == f"/ok?token={TOKEN}"
    assert first.headers["content-type"] == "application/json"
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == given.id
    assert first.headers["webhook-timestamp"] == "1614265330"
    assert first.body == second.body
    signed = f"{given.id}.1614265330.".encode() + first.body
    expected = [
        "v1," + base64.b64encode(hmac.digest(base64.b64decode(secret[6:]), signed, hashlib.sha256)).decode()
        for secret in (NEW_SECRET, SIGNING_SECRET)
    ]
    assert first.headers["webhook-signature"].split(" ") == expected
    data = json.loads(first.body)["data"]
    assert data["alerts"][0]["dedup_key"] == "churn/3:label_outage"


@pytest.mark.parametrize(
    ("path", "outcome", "detail", "retry_after_s"),
    [
        ("/status/204", "delivered", "127.0.0.1 answered 204", None),
        ("/status/500?text=out%20of%0Aorder", "retry", "127.0.0.1 answered 500: out of order", None),
        ("/status/429/7", "retry", "127.0.0.1 answered 429", 7.0),
        ("/status/503/Thu, 25 Feb 2021 15:03:10 GMT", "retry", "127.0.0.1 answered 503", 60.0),
        ("/status/404?text=no%20such%20hook", "rejected", "127.0.0.1 answered 404: no such hook", None),
        ("/status/410", "rejected", "127.0.0.1 answered 410", None),
        ("/cut", "retry", "could not be spoken to: the connection was closed without an answer", None),
        ("/half", "retry", "127.0.0.1 answered 500: half of it", None),
        ("/long", "rejected", "127.0.0.1 answered 400: xxxx", None),
    ],
)
def test_what_becomes_of_an_attempt(
    ops: Ops, receiver: HookReceiver, path: str, outcome: str, detail: str, retry_after_s: float | None
) -> None:
    delivery = ops.webhook(receiver.url(path.replace(" ", "%20")))
    assert delivery.outcome == outcome
    assert detail in delivery.detail
    assert len(delivery.detail) < 300
    assert delivery.retry_after_s == retry_after_s


@pytest.mark.parametrize("path", ["/hang", "/drip"])
def test_a_receiver_that_takes_its_time(ops: Ops, receiver: HookReceiver, path: str) -> None:
    delivery = ops.webhook(receiver.url(path), timeout="200ms")
    assert delivery == Delivery("retry", "no answer from 127.0.0.1 within 0.2 s")


def test_a_receiver_that_repeats_what_it_was_told(ops: Ops, receiver: HookReceiver) -> None:
    url = receiver.url(f"/status/400?echo=1&token={TOKEN}").replace("//", f"//user:{PASSWORD}@")
    delivery = ops.webhook(url)
    assert "answered 400: *** {" in delivery.detail
    basic = base64.b64encode(f"user:{PASSWORD}".encode()).decode()
    assert receiver.received()[-1].headers["authorization"] == f"Basic {basic}"
    assert basic not in delivery.detail


def test_a_receiver_that_is_killed_with_the_message_gets_it_again(ops: Ops, tmp_path: Path) -> None:
    with HookReceiver(tmp_path) as mortal:
        assert ops.webhook(mortal.url("/die")).outcome == "retry"
        assert mortal.wait() == -9
        away = ops.webhook(mortal.url("/ok"))
        assert (away.outcome, away.detail) == ("retry", "127.0.0.1 could not be spoken to: Connection refused")
        mortal.start()
        assert ops.webhook(mortal.url("/ok")).outcome == "delivered"
        first, second = mortal.received()
        assert first.headers["webhook-id"] == second.headers["webhook-id"]


def test_a_name_that_leads_nowhere_and_a_secret_that_is_gone(
    ops: Ops, receiver: HookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert ops.webhook("https://nowhere.invalid/hook").detail.startswith("nowhere.invalid could not be spoken to: ")
    (opened,) = open_hooks(
        AlertsSection(hooks=[ops.section(kind="webhook", url=receiver.url("/ok"), secrets=["env:SIGNING_SECRET"])])
    )
    monkeypatch.delenv("SIGNING_SECRET")
    delivery = opened.send(message())
    assert delivery.outcome == "retry"
    assert "alerts.hooks.ops.secrets = env:SIGNING_SECRET: the environment has no variable" in delivery.detail


# --- where a hook may go


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]"])
def test_private_addresses_are_refused(ops: Ops, receiver: HookReceiver, host: str) -> None:
    before = len(receiver.received())
    delivery = ops.webhook(receiver.url("/ok", host), allow_private=False)
    assert delivery.outcome == "retry"
    assert "leads to a private address (" in delivery.detail
    assert "set allow_private = true" in delivery.detail
    assert len(receiver.received()) == before


def test_the_address_that_was_checked_is_the_one_that_is_connected_to(
    ops: Ops, receiver: HookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    assert ops.webhook(receiver.url("/ok", "hooks.example")).outcome == "delivered"
    assert asked == ["hooks.example"]
    assert receiver.received()[-1].headers["host"] == f"hooks.example:{receiver.port}"


@pytest.mark.parametrize(
    ("path", "detail"),
    [
        ("/redirect/307/host", "127.0.0.1 redirects to http://127.0.0.2, which is not followed"),
        ("/redirect/308/metadata", "redirects to http://169.254.169.254, which is not followed"),
        ("/redirect/307/port", "redirects to https://127.0.0.1, which is not followed"),
        ("/redirect/307/file", "127.0.0.1 redirects to what is no address of HTTP"),
        ("/redirect/307/itself", "127.0.0.1 redirects more than 3 times; correct url"),
        ("/redirect/302/same", "127.0.0.1 answered 302; this kind of redirect is not followed"),
    ],
)
def test_redirects_that_are_not_followed(ops: Ops, receiver: HookReceiver, path: str, detail: str) -> None:
    delivery = ops.webhook(receiver.url(path))
    assert delivery.outcome == "retry"
    assert detail in delivery.detail


def test_a_redirect_on_the_same_host_is_followed_as_a_post(ops: Ops, receiver: HookReceiver) -> None:
    given = message()
    assert ops.webhook(receiver.url("/redirect/308/same"), given).outcome == "delivered"
    first, second = receiver.received()[-2:]
    assert (first.path, second.path) == ("/redirect/308/same", "/ok")
    assert first.body == second.body


def test_proxies_of_the_environment_are_not_used(
    ops: Ops, receiver: HookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert ops.webhook(receiver.url("/ok")).outcome == "delivered"


def test_a_proxy_for_addresses_without_tls(ops: Ops, receiver: HookReceiver) -> None:
    proxy = f"http://user:{PASSWORD}@127.0.0.1:{receiver.port}"
    assert ops.webhook("http://hooks.example/ok", proxy=proxy, allow_private=False).outcome == "delivered"
    passed_on = receiver.received()[-1]
    assert (passed_on.path, passed_on.headers["host"]) == ("http://hooks.example/ok", "hooks.example")
    assert passed_on.headers["proxy-authorization"].startswith("Basic ")
    refused = ops.webhook("http://10.0.0.1/ok", proxy=proxy, allow_private=False)
    assert refused.detail.startswith("10.0.0.1 is a private address, which is refused")


# --- TLS


class Secure:
    """A receiver of TLS that stands for hooks.slack.com, and a proxy whose tunnels all lead to it."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        authority = trustme.CA()
        self.ca_file = folder / "ca.pem"
        authority.cert_pem.write_to_path(str(self.ca_file))
        issued = authority.issue_cert("hooks.slack.com", "events.pagerduty.com", "localhost")
        self.certificate = folder / "certificate.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.certificate))
        folders = [folder / "receiver", folder / "proxy"]
        for path in folders:
            path.mkdir()
        self.receiver = stack.enter_context(HookReceiver(folders[0], self.certificate))
        self.proxy = stack.enter_context(HookReceiver(folders[1], tunnels_to=self.receiver.port))

    @property
    def through(self) -> dict[str, Any]:
        """Settings of a hook that goes through the proxy."""
        proxy = f"http://user:{PASSWORD}@127.0.0.1:{self.proxy.port}"
        return {"proxy": proxy, "ca_file": str(self.ca_file), "allow_private": False, "timeout": "60s"}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    with ExitStack() as stack:
        yield Secure(tmp_path_factory.mktemp("secure"), stack)


def test_a_certificate_of_an_own_authority(ops: Ops, secure: Secure) -> None:
    url = secure.receiver.url("/ok", "localhost")
    assert ops.webhook(url, ca_file=str(secure.ca_file)).outcome == "delivered"
    delivery = ops.webhook(url)
    assert delivery.outcome == "retry"
    assert "the certificate of localhost is not trusted: unable to get local issuer certificate" in delivery.detail
    assert "name it in ca_file" in delivery.detail


def test_a_certificate_of_another_name(ops: Ops, secure: Secure) -> None:
    delivery = ops.webhook(secure.receiver.url("/ok"), ca_file=str(secure.ca_file))
    assert delivery.outcome == "retry"
    assert "the certificate of 127.0.0.1 is not trusted: IP address mismatch" in delivery.detail


def test_pagerduty_through_a_proxy(ops: Ops, secure: Secure) -> None:
    delivery = ops.send(message(), kind="pagerduty", secrets=["env:KEY"], **secure.through)
    assert delivery == Delivery("delivered", "PagerDuty took 1 event")
    assert secure.proxy.received()[-1].path == "events.pagerduty.com:443"
    event = secure.receiver.received()[-1]
    assert (event.path, event.headers["host"]) == ("/v2/enqueue", "events.pagerduty.com")
    assert json.loads(event.body)["routing_key"] == KEY


# --- Apprise


def test_slack_through_a_proxy(ops: Ops, secure: Secure) -> None:
    given = message(alert(evidence={"groups": ["carrier=<UA>", "*"]}))
    delivery = ops.apprise(f"slack://T1JJ3T3L2/A1BRTD4JD/{TOKEN}1234567/#alerts", given, **secure.through)
    assert delivery == Delivery("delivered", "Slack took it")
    posted = secure.receiver.received()[-1]
    assert posted.path == f"/services/T1JJ3T3L2/A1BRTD4JD/{TOKEN}1234567"
    (attachment,) = json.loads(posted.body)["attachments"]
    assert attachment["title"] == "[critical] churn/3: labels are missing"
    assert attachment["text"].startswith("No labels for three panes\n  of: churn/3\n")
    assert "groups: carrier=&lt;UA&gt;; *\n" in attachment["text"]


@pytest.mark.parametrize(
    ("path", "settings", "expected"),
    [
        (f"/status/403?text={TOKEN}", {}, Delivery("rejected", "JSON: answered 403")),
        ("/status/503/9", {}, Delivery("retry", "JSON: answered 503", 9.0)),
        ("/redirect/302/same", {}, Delivery("retry", "JSON: answered 302")),
        ("/ok", {"timeout": "50ms"}, Delivery("retry", "no answer within 0.05 s")),
    ],
)
def test_apprise_against_a_receiver_that_fails(
    ops: Ops, receiver: HookReceiver, path: str, settings: dict[str, Any], expected: Delivery
) -> None:
    url = receiver.url(path).replace("http://", f"json://user:{PASSWORD}@")
    assert ops.apprise(url, **settings) == expected


def test_apprise_refuses_private_addresses(ops: Ops, receiver: HookReceiver) -> None:
    before = len(receiver.received())
    delivery = ops.apprise(receiver.url("/ok").replace("http", "json"), allow_private=False)
    assert delivery.outcome == "retry"
    assert "JSON: the address is a private one, which is refused; set allow_private = true" in delivery.detail
    assert len(receiver.received()) == before


def test_an_address_that_apprise_does_not_know(ops: Ops) -> None:
    delivery = ops.apprise(f"nothing://{TOKEN}")
    assert delivery == Delivery("retry", "what is in url is no address that Apprise knows")


def test_the_addresses_of_the_page_are_known_to_apprise() -> None:
    page = (Path(__file__).parents[2] / "docs/alerts.md").read_text()
    addresses = re.findall(r"\| `(\w+://[^`]*)` \|", page)
    assert len(addresses) >= 4
    assert [address for address in addresses if apprise.Apprise.instantiate(address) is None] == []


# --- mail


def mail_url(port: int, password: str = PASSWORD) -> str:
    return (
        f"mailtos://ops:{password}@localhost:{port}?smtp=localhost&mode=starttls"
        "&from=stream-calib@example.com&to=oncall@example.com"
    )


def test_mail_over_tls_with_a_password(ops: Ops, secure: Secure) -> None:
    with MailReceiver(secure.certificate, {"ops": PASSWORD}) as mail:
        given = message(alert(evidence={"group": "carrier=<UA>"}))
        delivery = ops.apprise(mail_url(mail.port), given, ca_file=str(secure.ca_file))
        assert delivery == Delivery("delivered", "E-Mail took it")
        (envelope,) = mail.received
        assert (envelope.mail_from, envelope.rcpt_tos) == ("stream-calib@example.com", ["oncall@example.com"])
        assert isinstance(envelope.content, bytes)
        parsed = message_from_bytes(envelope.content, policy=policy.default)
        assert parsed["subject"] == "[critical] churn/3: labels are missing"
        html = parsed.get_body(("html",))
        assert html is not None
        assert "<td>carrier=&lt;UA&gt;</td>" in html.get_content()


def test_mail_servers_that_are_not_trusted_or_refuse(ops: Ops, secure: Secure) -> None:
    with MailReceiver(secure.certificate, {"ops": "another"}) as mail:
        untrusted = ops.apprise(mail_url(mail.port))
        assert untrusted.outcome == "retry"
        assert "could not be spoken to (SSLCertVerificationError)" in untrusted.detail
        refused = ops.apprise(mail_url(mail.port), ca_file=str(secure.ca_file))
        assert refused == Delivery("rejected", "E-Mail: the mail server answered 535")
        assert mail.received == []
