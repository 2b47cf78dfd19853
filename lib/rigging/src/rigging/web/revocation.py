"""Revocable grants. Revoking one ends its sessions and everything open in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager


class GrantRevokedError(Exception):
    """The viewer's grant was revoked during the answer."""


class RevokedGrants:
    """The revoked grants (`Viewer.grant`). It belongs to one event loop, in which all methods are called."""

    def __init__(self) -> None:
        self._revoked: set[str] = set()
        self._open: dict[str, set[asyncio.Timeout]] = {}

    def __contains__(self, grant: str) -> bool:
        return grant in self._revoked

    def add(self, grants: Iterable[str]) -> None:
        """Record revoked grants, and end everything opened with them.

        Args:
            grants: The grants. Some may already be recorded.
        """
        for grant in {*grants} - {*self._revoked, ""}:
            self._revoked.add(grant)
            for limit in self._open.pop(grant, ()):
                limit.reschedule(asyncio.get_running_loop().time())

    @asynccontextmanager
    async def while_good(self, grant: str) -> AsyncIterator[None]:
        """Context manager that cancels the block when the grant is revoked.

        Args:
            grant: The grant; "" cannot be revoked.

        Raises:
            GrantRevokedError: The grant was revoked.
        """
        limit = asyncio.timeout(0 if grant in self._revoked else None)
        try:
            async with limit:
                held = self._open.setdefault(grant, set()) if grant else set()
                held.add(limit)
                try:
                    yield
                finally:
                    held.discard(limit)
                    if not held and self._open.get(grant) is held:
                        del self._open[grant]
        except TimeoutError:
            if limit.expired():
                raise GrantRevokedError(grant) from None
            raise
