"""GitLab's REST interface, through python-gitlab: bounded in time, and a token that never leaves its server.

python-gitlab waits for as long as a server asks, follows redirects with the token, and carries the request, its token
included, in exceptions. So here it neither waits nor retries, the session speaks to one origin only and follows no
redirect, and an exception ends as a reason: kind, status and the server's words, from which the token is taken out.
"""

from __future__ import annotations

import email.utils
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

from perfci.core.errors import MissingPackageError
from perfci.core.model import Fact, Reason
from perfci.report.text import plain

if TYPE_CHECKING:
    import gitlab

TIMEOUT_S = 15.0
"""For a connection, and between two pieces of an answer."""

WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""Before each further attempt, where the server does not ask for longer."""

LONGEST_S = 60.0
"""Longest wait that a server may ask for."""

PATIENCE_S = 180.0
"""All waits over one connection together."""

_API = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~-]+)*/api/v4/?")
_NUMBER = re.compile(r"[1-9][0-9]{0,17}")
_TOKEN = re.compile(r"[!-~]{8,512}")

TRANSIENT = frozenset({500, 502, 503, 504, 520, 521, 522, 523, 524})


Worded = Callable[[str, Mapping[str, Fact]], Reason]
"""The reason of a failure: token_refused, forbidden, not_found, refused, rate_limited, server_failed, timed_out,
unreachable, answer_unreadable or redirected, with api, status and told, or why, or seconds; and needs_python_gitlab."""


@dataclass(frozen=True)
class Place:
    """A server's interface, and who speaks to it; the token shows in no text of it."""

    api: str
    """address of the interface, without a slash at the end"""
    token: str = field(repr=False)
    certificates: str | None = None
    """file with the certificates to trust, where they are not the system's"""


Where = TypeVar("Where", bound=Place)


@dataclass(frozen=True)
class Answer:
    """What a call gave: data, or why there is none."""

    data: Any = None
    next_page: int | None = None
    failure: Reason | None = None
    again: bool = False
    """another attempt may succeed"""
    unclear: bool = False
    """whether the server did it is not known: it broke off, or said nothing"""
    status: int | None = None
    wait_s: float = 0.0
    """that the server asks for"""


@dataclass
class Server(Generic[Where]):
    """A connection with its patience."""

    place: Where
    client: gitlab.Gitlab
    worded: Worded
    sleep: Callable[[float], None] = time.sleep
    waited_s: float = 0.0
    headers: dict[str, str] = field(default_factory=dict)
    """of the latest answer"""

    def ask(
        self,
        verb: str,
        path: str,
        *,
        query: Mapping[str, str | int] | None = None,
        data: Mapping[str, Any] | None = None,
        file: tuple[str, bytes, str] | None = None,
        repeat_unclear: bool = True,
    ) -> Answer:
        """One call with its retries. repeat_unclear: also where the server may have done it already."""
        waits = iter(WAITS_S)
        while True:
            answer = self._once(verb, path, dict(query or {}), data, file)
            if not answer.again or (answer.unclear and not repeat_unclear):
                return answer
            pause = next(waits, None)
            if pause is None or not self.pause(max(pause, answer.wait_s)):
                return answer

    def pause(self, seconds: float) -> bool:
        """Wait so long; False, at once, where that is longer than one may wait."""
        if seconds > LONGEST_S or self.waited_s + seconds > PATIENCE_S:
            return False
        self.waited_s += seconds
        self.sleep(seconds)
        return True

    def _once(
        self,
        verb: str,
        path: str,
        query: dict[str, Any],
        data: Mapping[str, Any] | None,
        file: tuple[str, bytes, str] | None,
    ) -> Answer:
        import gitlab
        import requests

        self.headers.clear()
        try:
            found = self.client.http_request(
                verb,
                path,
                query_data=query,
                post_data=dict(data) if data else None,
                files={"file": file} if file else None,
                obey_rate_limit=False,
                retry_transient_errors=False,
            )
            return Answer(found.json(), _page(found.headers.get("X-Next-Page")))
        except gitlab.exceptions.GitlabError as error:
            return self._refused(error.response_code, self._told(error.error_message))
        except requests.exceptions.TooManyRedirects:
            return Answer(failure=self.worded("redirected", {"api": self.place.api}))
        except requests.exceptions.JSONDecodeError:
            reason = self.worded("answer_unreadable", {"api": self.place.api})
            return Answer(failure=reason, again=True, unclear=True)
        except requests.exceptions.Timeout:
            reason = self.worded("timed_out", {"api": self.place.api, "seconds": TIMEOUT_S})
            return Answer(failure=reason, again=True, unclear=True)
        except (requests.exceptions.RequestException, OSError, ValueError) as error:
            reason = self.worded("unreachable", {"api": self.place.api, "why": self._told(error)})
            return Answer(failure=reason, again=True, unclear=True)

    def _refused(self, status: int | None, told: str) -> Answer:
        facts: dict[str, Fact] = {"status": status, "told": told, "api": self.place.api}
        if status == 429:
            wait = _seconds(self.headers.get("Retry-After", ""))
            return Answer(failure=self.worded("rate_limited", facts), again=True, status=status, wait_s=wait)
        if status in TRANSIENT:
            wait = _seconds(self.headers.get("Retry-After", ""))
            reason = self.worded("server_failed", facts)
            return Answer(failure=reason, again=True, unclear=True, status=status, wait_s=wait)
        return Answer(failure=self.worded(_REFUSALS.get(status or 0, "refused"), facts), status=status)

    def _told(self, said: object) -> str:
        """The server's or the library's words, short, in one line, the token taken out."""
        return plain(str(said).replace(self.place.token, "***"), 160) or "-"


_REFUSALS = {401: "token_refused", 403: "forbidden", 404: "not_found"}
"""By status; any other is a refusal of what was asked."""


def is_api(text: str) -> bool:
    """Whether this is an interface's address as GitLab gives it in CI_API_V4_URL.

    >>> is_api("https://gitlab.example.com/api/v4"), is_api("https://gitlab.example.com:port/api/v4")
    (True, False)
    """
    try:
        return bool(_API.fullmatch(text)) and (urlsplit(text).port or 0) >= 0
    except ValueError:
        return False


def is_number(text: str) -> bool:
    """Whether this is a number of a project or merge request."""
    return bool(_NUMBER.fullmatch(text))


def is_token(text: str) -> bool:
    """Whether this can be a token, and stand in a header, where what is wrong with it would be told with it."""
    return bool(_TOKEN.fullmatch(text))


def _page(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() else None


def _seconds(text: str) -> float:
    """Of a Retry-After header, which is a number of seconds or a date; 0 where it is neither.

    >>> _seconds("7"), _seconds("soon")
    (7.0, 0.0)
    """
    if text.strip().isascii() and text.strip().isdigit():
        return float(text)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0.0


def connect(place: Where, worded: Worded, sleep: Callable[[float], None] = time.sleep) -> Server[Where]:
    """Nothing is sent yet. Raises MissingPackageError without python-gitlab.

    worded: makes the reasons of failures, which say different things to different readers.
    """
    try:
        import gitlab
        import requests
        from requests.adapters import HTTPAdapter
    except ImportError as error:
        raise MissingPackageError(worded("needs_python_gitlab", {}).kind) from error

    headers: dict[str, str] = {}
    session = requests.Session()
    session.max_redirects = 0
    session.adapters.clear()
    session.mount(_origin(place.api), HTTPAdapter(max_retries=0))

    def note(response: requests.Response, *_: object, **__: object) -> None:
        headers.update({"Retry-After": response.headers.get("Retry-After", "")})

    session.hooks["response"].append(note)
    client = gitlab.Gitlab(
        place.api.removesuffix("/api/v4"),
        private_token=place.token,
        timeout=TIMEOUT_S,
        ssl_verify=place.certificates or True,
        keep_base_url=True,
        session=session,
    )
    return Server(place, client, worded, sleep, headers=headers)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}/"
