import pytest

from iris.domain.constraints import Constraint, ConstraintOp, evaluate, soft_score, validate_constraint
from rigging.errors import InvalidRequest

WORKER = {"zone": "us-a", "chips": "8"}


@pytest.mark.parametrize(
    ("key", "op", "values", "holds"),
    [
        ("zone", ConstraintOp.EQ, ("us-a",), True),
        ("zone", ConstraintOp.EQ, ("us-b",), False),
        ("zone", ConstraintOp.NE, ("us-b",), True),
        ("zone", ConstraintOp.NE, ("us-a",), False),
        ("zone", ConstraintOp.IN, ("us-b", "us-a"), True),
        ("zone", ConstraintOp.IN, ("us-b",), False),
        ("zone", ConstraintOp.EXISTS, (), True),
        ("rack", ConstraintOp.EXISTS, (), False),
        ("rack", ConstraintOp.EQ, ("",), False),
        ("rack", ConstraintOp.NE, ("1",), True),
        ("chips", ConstraintOp.GT, ("7.5",), True),
        ("chips", ConstraintOp.GT, ("8",), False),
        ("chips", ConstraintOp.GE, ("8",), True),
        ("chips", ConstraintOp.LT, ("10",), True),  # as numbers, not as text
        ("chips", ConstraintOp.LE, ("8",), True),
        ("chips", ConstraintOp.LE, ("7",), False),
        ("zone", ConstraintOp.GT, ("1",), False),
        ("rack", ConstraintOp.LT, ("1",), False),
    ],
)
def test_operators(key, op, values, holds):
    assert Constraint(key, op, values).evaluate(WORKER) is holds


def test_soft_ones_prefer_and_never_exclude():
    soft = Constraint("zone", ConstraintOp.EQ, ("us-b",), soft=True)
    hard = Constraint("zone", ConstraintOp.EQ, ("us-a",))
    assert evaluate((soft, hard), WORKER)
    assert soft_score((soft, hard), WORKER) == 0
    assert soft_score((soft, hard), {"zone": "us-b"}) == 1
    assert not evaluate((soft, hard), {"zone": "us-b"})


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (Constraint("", ConstraintOp.EXISTS), "empty key"),
        (Constraint("zone", ConstraintOp.EQ), "EQ takes one value"),
        (Constraint("zone", ConstraintOp.EQ, ("a", "b")), "has 2 values; EQ takes one value"),
        (Constraint("zone", ConstraintOp.IN), "IN takes one value or more"),
        (Constraint("zone", ConstraintOp.EXISTS, ("a",)), "EXISTS takes no value"),
        (Constraint("chips", ConstraintOp.GT, ("many",)), "'many' is not a number"),
    ],
)
def test_constraints_without_sense_are_refused(bad, reason):
    with pytest.raises(InvalidRequest) as caught:
        validate_constraint(bad)
    assert reason in str(caught.value)
