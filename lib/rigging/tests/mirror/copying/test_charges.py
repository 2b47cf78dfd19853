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
