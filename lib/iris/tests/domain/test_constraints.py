import pytest

from iris.domain.constraints import (
    Constraint,
    ConstraintOp,
    evaluate,
    parse_constraint,
    soft_score,
    validate_constraint,
)
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


@pytest.mark.parametrize(
    "known",
    [
        Constraint("zone", ConstraintOp.EQ, ("us-a",)),
        Constraint("kind", ConstraintOp.EQ, ("a=b, c",)),
        Constraint("zone", ConstraintOp.NE, ("us-a",)),
        Constraint("zone", ConstraintOp.IN, ("a", "b")),
        Constraint("zone", ConstraintOp.EXISTS),
        Constraint("chips", ConstraintOp.GT, ("8",)),
        Constraint("chips", ConstraintOp.GE, ("8",)),
        Constraint("chips", ConstraintOp.LT, ("8.5",)),
        Constraint("chips", ConstraintOp.LE, ("8",)),
    ],
)
def test_a_condition_is_read_as_it_is_shown_with_and_without_spaces(known):
    assert parse_constraint(str(known)) == known
    if known.op not in (ConstraintOp.IN, ConstraintOp.EXISTS):
        assert parse_constraint(str(known).replace(" ", "", 2)) == known


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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("zone", "'zone' is not a condition; write KEY=VALUE, KEY!=VALUE, 'KEY in A,B' or 'KEY>=NUMBER'"),
        ("=a", "'=a' is not a condition"),
        ("zone=", "'zone=' has an empty value; write zone=VALUE"),
        ("zone in a,,b", "has an empty value; write zone in A,B"),
        ("chips>many", "'many' is not a number"),
        ("zone exists now", "has 1 values; EXISTS takes no value"),
    ],
)
def test_a_condition_without_sense_is_refused(text, reason):
    with pytest.raises(InvalidRequest) as caught:
        parse_constraint(text)
    assert reason in str(caught.value)
