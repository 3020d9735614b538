"""`python -m stream_calib.alerts.hooks.apprise_process`: one message through Apprise, in a process of its own.

On its input is what to send, as JSON; on its output what became of it. A process, because Apprise blocks for as long as
a receiver wants, logs what it was given, and takes memory that no other hook needs; and because its libraries can be
held to what a hook may do only from below, for the whole process: private addresses and other hosts refused, answers
noted, which Apprise reduces to yes or no.

Texts of receivers and of libraries are not passed on: they may repeat keys.
"""

from __future__ import annotations

import functools
import json
import os
import smtplib
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stream_calib.alerts.hooks.addresses import HttpAddress, endpoints, is_public
from stream_calib.alerts.hooks.retrying import is_for_good, retry_after_s

_RESOLVE_S = 10.0


@dataclass(slots=True)
class _Noted:
    """What went wrong on the way, in the order in which it did."""

    failures: dict[str, bool] = field(default_factory=dict)
    """In words -> whether it is for good."""
    retry_after_s: float | None = None

    def add(self, words: str, *, for_good: bool = False) -> None:
        self.failures[words] = for_good


def main() -> None:
    """Reads standard input, writes standard output."""
    given = json.load(sys.stdin)
    # Libraries write of what they are given; only the last line of the output is ours.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
    sys.stdout.write("\n" + json.dumps(_sent(**given)))


def _sent(
    url: str, title: str, texts: dict[str, str], level: str, allow_private: bool, proxy: str | None
) -> dict[str, Any]:
    """`texts`: the body by Apprise's name of its format; `level`: Apprise's word for how bad it is.
    The fields of a Delivery."""
    import apprise

    noted = _Noted()
    if proxy is not None:
        os.environ |= {"HTTP_PROXY": proxy, "HTTPS_PROXY": proxy}
    if not allow_private:
        _refuse_private(noted, set() if proxy is None else _found(HttpAddress.parse(proxy)))
    _note_http(noted)
    _note_smtp(noted)
    # Redirects are not followed: most would turn the POST into a GET, which looks like a success.
    asset = apprise.AppriseAsset(secure_logging=True, async_mode=False, http_redirects=False, storage_mode="memory")
    receiver = apprise.Apprise.instantiate(url, asset=asset)
    if receiver is None:
        return _delivery("retry", "what is in url is no address that Apprise knows")
    sender = apprise.Apprise(asset=asset)
    sender.add(receiver)
    # What takes HTML first is mail. Chats are given plain text too, which Apprise escapes: data must not format.
    taken = receiver.notify_format
    is_mail = (taken[0] if isinstance(taken, tuple) else taken) == apprise.NotifyFormat.HTML
    form = apprise.NotifyFormat.HTML if is_mail else apprise.NotifyFormat.TEXT
    service = str(receiver.service_name)
    if sender.notify(body=texts[form.value], title=title, notify_type=level, body_format=form):
        return _delivery("delivered", f"{service} took it")
    words = "; ".join(noted.failures) or "Apprise does not say why"
    for_good = bool(noted.failures) and all(noted.failures.values())
    return _delivery("rejected" if for_good else "retry", f"{service}: {words}", noted.retry_after_s)


def _delivery(outcome: str, detail: str, retry_after_s: float | None = None) -> dict[str, Any]:
    return {"outcome": outcome, "detail": detail, "retry_after_s": retry_after_s}


def _found(proxy: HttpAddress) -> set[tuple[str, int]]:
    found = endpoints(proxy.host, proxy.port, allow_private=True, timeout_s=_RESOLVE_S)
    return {(str(endpoint.address[0]), proxy.port) for endpoint in found}


def _refuse_private(noted: _Noted, exempt: set[tuple[str, int]]) -> None:
    """Of whatever opens a connection, by Python's audit events: what is checked is what is connected to."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in ("socket.connect", "socket.sendto"):
            return
        address = arguments[1]
        if isinstance(address, tuple) and (tuple(address[:2]) in exempt or _is_public_number(address[0])):
            return
        noted.add("the address is a private one, which is refused; set allow_private = true where that is meant")
        raise OSError("refused")

    sys.addaudithook(look)


def _is_public_number(host: Any) -> bool:
    """False also for names, which are resolved where nobody checks what they lead to."""
    try:
        return is_public(str(host))
    except ValueError:
        return False


def _note_http(noted: _Noted) -> None:
    """Answers that the library `requests` gets."""
    import requests

    def send(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            answer = original(*given, **named)
        except requests.RequestException as error:
            noted.add(f"no answer ({type(error).__name__})")
            raise
        if answer.status_code >= 300:
            noted.add(f"answered {answer.status_code}", for_good=is_for_good(answer.status_code))
            asked_s = retry_after_s(answer.headers.get("Retry-After"), time.time())
            noted.retry_after_s = max(filter(None, (noted.retry_after_s, asked_s)), default=None)
        return answer

    _wrap(requests.adapters.HTTPAdapter, "send", send)


def _note_smtp(noted: _Noted) -> None:
    """What mail servers refuse."""

    def note(code: int) -> None:
        noted.add(f"the mail server answered {code}", for_good=code >= 500)

    def step(original: Callable[..., Any], *given: Any, **named: Any) -> Any:
        try:
            found = original(*given, **named)
        except smtplib.SMTPRecipientsRefused as error:
            for code, _ in error.recipients.values():
                note(code)
            raise
        except smtplib.SMTPResponseException as error:
            note(error.smtp_code)
            raise
        except (OSError, smtplib.SMTPException) as error:
            noted.add(f"the mail server could not be spoken to ({type(error).__name__})")
            raise
        if isinstance(found, dict):  # of recipients that were refused while others were not
            for code, _ in found.values():
                note(code)
        return found

    for name in ("connect", "starttls", "login", "sendmail"):
        _wrap(smtplib.SMTP, name, step)


def _wrap(owner: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*given: Any, **named: Any) -> Any:
        return around(original, *given, **named)

    setattr(owner, name, wrapped)


if __name__ == "__main__":
    main()
