from rigging.clock import SYSTEM_CLOCK


def test_system_clock_moves() -> None:
    wall, monotonic = SYSTEM_CLOCK.now(), SYSTEM_CLOCK.monotonic()
    SYSTEM_CLOCK.sleep(0.001)
    assert SYSTEM_CLOCK.monotonic() >= monotonic + 0.001
    assert SYSTEM_CLOCK.now() >= wall
