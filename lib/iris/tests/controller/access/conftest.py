from pathlib import Path

import pytest

from iris.controller.access.credentials import Credentials
from iris.store.store import Store


class House:
    """Credentials over a real store, with a frozen clock."""

    def __init__(self, state_dir: Path) -> None:
        self.state_dir = state_dir
        self.now = 1_000_000
        self.store = Store.open(state_dir)
        self.credentials = Credentials(self.store, lambda: self.now, "ab" * 32)

    def again(self) -> "House":
        """Return the credentials as loaded by the next controller."""
        self.store.close()
        found = House(self.state_dir)
        found.now = self.now
        found.credentials.restore()
        return found

    def token(self, uses: int = 1, lifetime_ms: int = 1000) -> str:
        return self.credentials.create(lifetime_ms, uses, "", "admin root")[0].token_id


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path / "state")
