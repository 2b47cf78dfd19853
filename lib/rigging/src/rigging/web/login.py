"""Login: single-use links, and the sessions that they open.

Links are in this process's memory. Sessions are signed and not stored: they stay valid as long as the key.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

_TOKEN_BYTES: Final = 32
_MOST_LINKS: Final = 256
KEY_BYTES: Final = 32
Subject = TypeVar("Subject")


@dataclass(frozen=True, slots=True)
class Viewer:
    """A user who views the pages.

    Attributes:
        name: The user's name.
        may_write: Whether they may change something, where the pages offer that.
        grant: The id of their revocable grant; "" if it cannot be revoked.
    """

    name: str
    may_write: bool = False
    grant: str = ""


@dataclass(frozen=True, slots=True)
class Session:
    """A session of a viewer.

    Attributes:
        id: The session's random id.
        viewer: The viewer.
        until: The end of the session, in seconds since the epoch.
    """

    id: str
    viewer: Viewer
    until: float


class LoginLinks(Generic[Subject]):
    """Tokens for links that let somebody in, each valid once and for a short time. Threads may share it.

    Args:
        seconds: Lifetime of a token.
        now: Returns the current time, in seconds since the epoch.
    """

    def __init__(self, seconds: float = 600.0, now: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._now = now
        self._lock = threading.Lock()
        self._subjects: dict[bytes, tuple[Subject, float]] = {}

    def issue(self, subject: Subject) -> str:
        """Return a new token. If very many are unused, the oldest are dropped."""
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        with self._lock:
            self._forget_old()
            while len(self._subjects) >= _MOST_LINKS:
                del self._subjects[next(iter(self._subjects))]
            self._subjects[_digest(token)] = (subject, self._now() + self._seconds)
        return token

    def redeem(self, token: str) -> Subject | None:
        """Invalidate a token and return its subject; None if it is unknown, used or expired."""
        given = _digest(token)
        with self._lock:
            self._forget_old()
            # Digests are compared, each in constant time: how long it takes tells nothing about a token.
            found = [known for known in self._subjects if hmac.compare_digest(known, given)]
            return self._subjects.pop(found[0])[0] if found else None

    def _forget_old(self) -> None:
        now = self._now()
        for digest in [digest for digest, (_, until) in self._subjects.items() if until <= now]:
            del self._subjects[digest]


class Sessions:
    """Signed sessions and the tokens in their forms. Threads may share it.

    Args:
        key: The signing key. Sessions of another key are invalid. None means a random one, which ends with the process.
        seconds: Lifetime of a session.
        now: Returns the current time, in seconds since the epoch.
    """

    def __init__(
        self, key: bytes | None = None, seconds: float = 12 * 3600.0, now: Callable[[], float] = time.time
    ) -> None:
        self._key = secrets.token_bytes(KEY_BYTES) if key is None else key
        self._now = now
        self.seconds = seconds
        self._ended: dict[str, float] = {}

    def open(self, viewer: Viewer) -> str:
        """Return the cookie of a new session."""
        return self.cookie_at("", Session(secrets.token_urlsafe(12), viewer, int(self._now() + self.seconds)))

    def cookie_at(self, place: str, session: Session) -> str:
        """Return a cookie of a session that is valid at one place only. It ends with the session.

        Args:
            place: A host name of other pages; "" for the application's own.
            session: The session.
        """
        viewer = session.viewer
        claims = [session.id, viewer.name, viewer.may_write, session.until, viewer.grant]
        body = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode()
        return f"{body}.{self._sign(_purpose(place), body)}"

    def read(self, cookie: str, place: str = "") -> Session | None:
        """Return the session of a cookie; None if it is forged, expired, ended, or of another place."""
        body, _, signature = cookie.partition(".")
        if not hmac.compare_digest(self._sign(_purpose(place), body).encode(), signature.encode("utf-8", "replace")):
            return None
        # What is signed is what `cookie_at` wrote.
        id, name, may_write, until, grant = json.loads(base64.urlsafe_b64decode(body))
        if until <= self._now() or id in self._ended:
            return None
        return Session(id, Viewer(name, may_write, grant), until)

    def of_cookies(self, cookies: Iterable[str], place: str = "") -> Session | None:
        """Return the session of a request's cookies; None if none is valid, or if two different sessions are.

        Another page of this host may have added cookies. Invalid cookies are ignored; a second valid session would be
        ambiguous.
        """
        found = {session.id: session for cookie in cookies if (session := self.read(cookie, place)) is not None}
        return next(iter(found.values())) if len(found) == 1 else None

    def end(self, session: Session) -> None:
        """End a session, for the lifetime of this process."""
        now = self._now()
        self._ended = {id: until for id, until in self._ended.items() if until > now} | {session.id: session.until}

    def form_token(self, session: Session) -> str:
        """Return the token for this session's forms."""
        return self._sign("form", session.id)

    def is_form_token(self, session: Session, token: str) -> bool:
        """Return whether a token is valid for the session's forms."""
        return hmac.compare_digest(self.form_token(session).encode(), token.encode("utf-8", "replace"))

    def _sign(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def _purpose(place: str) -> str:
    return f"session at {place}" if place else "session"


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()
