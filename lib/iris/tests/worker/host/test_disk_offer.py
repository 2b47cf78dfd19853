"""A worker offers the disk that there is: what was free when it started says little an hour later."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iris.domain.resources import Resources
from iris.worker.host.disk_offer import CapacityOffer, next_offer

GB = 2**30
MB = 2**20


@pytest.mark.parametrize(
    ("offered", "free", "reserved", "after", "why"),
    [
        (2 * GB, 100 * GB, 0, 100 * GB, "room was made"),
        (100 * GB, GB, 0, GB, "somebody else has taken it"),
        (100 * GB, 60 * GB, 50 * GB, 100 * GB, "a task may be using what it was promised"),
        (100 * GB, 20 * GB, 50 * GB, 70 * GB, "that is more than it was promised"),
        (100 * GB, 98 * GB, 0, 100 * GB, "that is no change to speak of"),
        (100 * MB, 90 * MB, 0, 90 * MB, "on a small disk it is"),
        (MB // 2, 0, 0, 0, "there is nothing"),
        (0, 300_000, 0, 0, "next to nothing"),
        (0, 2 * MB, 0, 2 * MB, "there is something again"),
    ],
)
def test_what_is_offered_next(offered: int, free: int, reserved: int, after: int, why: str) -> None:
    assert next_offer(offered, free, reserved) == after, why


sizes = st.integers(0, 2**45)


@given(sizes, sizes, sizes)
def test_an_offer_is_never_far_from_what_there_may_be(offered: int, free: int, reserved: int) -> None:
    after = next_offer(offered, free, reserved)
    slack = max(MB, offered // 20)
    assert free - slack <= after <= free + reserved + slack
    assert next_offer(after, free, reserved) == after, "looking again changes nothing"


def test_only_the_disk_changes_and_only_where_it_can_be_seen() -> None:
    def broken() -> int:
        raise OSError("stale handle")

    for free in (None, broken):
        offer = CapacityOffer(Resources(1000, 2 * GB, GB), free)
        assert not offer.renew(0), "a capacity that was given stays"
        assert offer.capacity.disk_bytes == GB
    offer = CapacityOffer(Resources(1000, 2 * GB, GB), lambda: 5 * GB)
    assert offer.renew(0)
    assert offer.capacity == Resources(1000, 2 * GB, 5 * GB)
    assert not offer.renew(0)
