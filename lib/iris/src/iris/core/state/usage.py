"""Each user's recent usage of the cluster: held weight, integrated over time, with a half-life."""

from math import log
from typing import Final

HALF_LIFE_MS: Final = 24 * 3600 * 1000

_DECAY_PER_MS: Final = log(2) / HALF_LIFE_MS


class UsageLedger:
    """The decayed usage of every user, updated as attempts start and end.

    With held weight r, the usage v follows dv/dt = r - v * ln(2) / HALF_LIFE_MS. Its unit is weight times ms.
    """

    __slots__ = ("_accounts",)

    def __init__(self) -> None:
        self._accounts: dict[str, tuple[float, float, int]] = {}  # use, held weight, at_ms of both

    def shift(self, user: str, weight: float, at_ms: int) -> None:
        """Change the user's held weight by `weight` from `at_ms` on.

        Args:
            user: The user.
            weight: The change of the held weight, which may be negative.
            at_ms: The time of the change in Unix ms.
        """
        _, held, before = self._accounts.get(user, (0.0, 0.0, at_ms))
        at_ms = max(at_ms, before)
        held_now = held + weight
        # Sums of fractions do not come back to zero by themselves.
        self._accounts[user] = (self.use(user, at_ms), held_now if held_now > 1e-6 else 0.0, at_ms)

    def use(self, user: str, now_ms: int) -> float:
        """Return the user's decayed usage at `now_ms`."""
        account = self._accounts.get(user)
        if account is None:
            return 0.0
        use, held, at_ms = account
        left: float = 0.5 ** (max(now_ms - at_ms, 0) / HALF_LIFE_MS)
        return use * left + held / _DECAY_PER_MS * (1 - left)

    def held(self, user: str) -> float:
        """Return the user's held weight now."""
        account = self._accounts.get(user)
        return 0.0 if account is None else account[1]

    def restore(self, user: str, use: float, at_ms: int) -> None:
        """Set the user's usage at `at_ms`, e.g. before a restart. The held weight does not change.

        Args:
            user: The user.
            use: The usage at `at_ms`.
            at_ms: Unix ms.
        """
        self._accounts[user] = (use, self.held(user), at_ms)

    def users(self) -> list[str]:
        """Return all users with an account."""
        return list(self._accounts)
