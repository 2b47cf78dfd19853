"""A client's link to its session, which is restarted when it dies."""

import logging
import threading
from collections.abc import Callable
from typing import Any

import ray

from fray.backends.ray.lookup import find_session
from fray.backends.ray.session import start_session
from rigging.timing import ExponentialBackoff, retry_with_backoff

logger = logging.getLogger(__name__)

_ATTEMPTS = 5
_UNTIL_ITS_NAME_IS_FREE = ExponentialBackoff(initial=0.2, maximum=0.2)


class SessionLink:
    """Find the session of a Ray namespace, and start it if it is missing or dead.

    A new session starts empty: the old session's actors ended with it, and running jobs report again.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self._lock = threading.Lock()
        self._session: Any = None
        self._greeting: Any = None

    def get(self) -> Any:
        """Return the session's Ray actor. Start it if needed, without waiting."""
        with self._lock:
            if self._session is None:
                self._session = start_session(self._namespace)
                self._greeting = self._session.ping.remote()
            return self._session

    def ask(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask the session and return its answer. A dead session is replaced and asked again.

        Args:
            question: Calls a method of the session and returns Ray's reference to the answer.
            timeout: Seconds to wait for the answer.
        """

        def ask_once() -> Any:
            session = self.get()
            try:
                return ray.get(question(session), timeout=timeout)
            except ray.exceptions.ActorDiedError:
                self.lost(session)
                raise

        return retry_with_backoff(
            ask_once, retryable=ray.exceptions.ActorDiedError, max_attempts=_ATTEMPTS, backoff=_UNTIL_ITS_NAME_IS_FREE
        )

    def ask_if_up(self, question: Callable[[Any], Any], timeout: float) -> Any:
        """Ask the session like `ask`; return None if it cannot answer now. May start the session."""
        session = self.get()
        try:
            if self._greeting is not None:
                ready, _ = ray.wait([self._greeting], timeout=0)
                if not ready:
                    return None
                self._greeting = None
            return ray.get(question(session), timeout=timeout)
        except ray.exceptions.ActorDiedError:
            self.lost(session)
        except ray.exceptions.RayError:
            pass
        return None

    def known(self) -> Any:
        """Return the session, if any process of this client has started it."""
        return self._session or find_session(self._namespace)

    def forget(self) -> None:
        """Forget a session that was ended on purpose."""
        with self._lock:
            self._session = self._greeting = None

    def lost(self, session: Any) -> None:
        """Record that this session has died."""
        with self._lock:
            if self._session is not session:
                return
            self._session = self._greeting = None
        logger.warning(
            "the session of this Ray client (%s) died, and the client's actors with it; jobs continue, and "
            "a new session starts",
            self._namespace,
        )
