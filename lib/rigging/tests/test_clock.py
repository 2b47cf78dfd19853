import pytest

from rigging.clock import SYSTEM_CLOCK
from rigging.testing import FakeClock


def test_system_clock_moves() -> None:
    wall, monotonic = SYSTEM_CLOCK.now(), SYSTEM_CLOCK.monotonic()
    SYSTEM_CLOCK.sleep(0.001)
    assert SYSTEM_CLOCK.monotonic() >= monotonic + 0.001
    assert SYSTEM_CLOCK.now() >= wall


def test_fake_clock_moves_only_when_moved(clock: FakeClock) -> None:
    wall, monotonic = clock.now(), clock.monotonic()
    clock.advance(2)
    clock.sleep(1)
    assert (clock.now() - wall, clock.monotonic() - monotonic, clock.sleeps) == (3, 3, [1])
    clock.step_wall(-100)
    assert (clock.now() - wall, clock.monotonic() - monotonic) == (-97, 3)
    with pytest.raises(ValueError, match="cannot go back"):
        clock.advance(-1)
