"""The cost of a copy: reserved before it begins, paid for as far as it moved, and given back when it does not stand."""

import pytest

from rigging.filesystem.budget import TransferBudget, TransferBudgetExceeded
from rigging.mirror.copying.charges import TransferCharge


@pytest.fixture
def hundred() -> TransferBudget:
    return TransferBudget(100)


def test_what_is_charged_is_reserved_at_once_and_kept_when_it_is_paid(hundred: TransferBudget) -> None:
    charge = TransferCharge(hundred.reserve, "gs://b/x")
    moved = charge.reserve(60)
    assert hundred.bytes_used == 60
    moved(20)
    moved(30)
    assert (charge.bytes_moved, hundred.bytes_used) == (50, 60)
    charge.settle()
    assert hundred.bytes_used == 50, "what did not move is given back"
    charge.cancel()
    assert hundred.bytes_used == 50, "what is paid stays paid"


def test_a_copy_that_does_not_stand_costs_nothing(hundred: TransferBudget) -> None:
    charge = TransferCharge(hundred.reserve, "gs://b/x")
    charge.reserve(60)(40)
    charge.cancel()
    assert (charge.bytes_moved, hundred.bytes_used) == (0, 0)


def test_a_new_charge_takes_the_place_of_the_former(hundred: TransferBudget) -> None:
    charge = TransferCharge(hundred.reserve, "gs://b/x")
    charge.reserve(60)(40)
    charge.reserve(80)(10)
    assert (charge.bytes_moved, hundred.bytes_used) == (10, 80)
    with pytest.raises(TransferBudgetExceeded, match="gs://b/x"):
        charge.reserve(101)
    assert hundred.bytes_used == 0


def test_what_does_not_cross_is_counted_and_not_charged() -> None:
    charge = TransferCharge(None, "gs://b/x")
    charge.reserve(60)(40)
    charge.settle()
    assert charge.bytes_moved == 40
    charge.cancel()
    assert charge.bytes_moved == 0


class TestReservations:
    def test_parts_are_taken_out_of_a_whole_and_settled_by_themselves(self, hundred: TransferBudget) -> None:
        with hundred.reserve(80, "all") as whole:
            first, second = whole.take(30, "a"), whole.take(40, "b")
            assert (hundred.bytes_used, whole.bytes_reserved) == (80, 10)
            first.settle(30)
            second.release()
            assert hundred.bytes_used == 40
        assert hundred.bytes_used == 30, "what was not taken is given back"

    def test_what_the_whole_lacks_is_reserved_anew_or_nothing_is_taken(self, hundred: TransferBudget) -> None:
        whole = hundred.reserve(50, "all")
        more = whole.take(70, "a")
        assert (hundred.bytes_used, whole.bytes_reserved, more.bytes_reserved) == (70, 0, 70)
        more.release()
        assert hundred.bytes_used == 0
        whole = hundred.reserve(50, "all")
        with pytest.raises(TransferBudgetExceeded, match=r"^b: reading 51 bytes"):
            whole.take(101, "b")
        assert (hundred.bytes_used, whole.bytes_reserved) == (50, 50)

    def test_one_that_is_settled_has_nothing_to_take_from(self, hundred: TransferBudget) -> None:
        whole = hundred.reserve(50, "all")
        whole.settle(50)
        assert whole.take(20, "a").bytes_reserved == 20
        assert hundred.bytes_used == 70

    def test_a_reset_leaves_what_was_reserved_before_it_out(self, hundred: TransferBudget) -> None:
        whole = hundred.reserve(50, "all")
        hundred.reset(200)
        more = whole.take(70, "a")
        assert (hundred.bytes_used, hundred.limit_bytes) == (20, 200)
        more.settle(20)
        whole.release()
        assert hundred.bytes_used == 20
