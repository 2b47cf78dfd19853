"""`eventually`: what it returns, and what it says when nothing comes."""

import pytest

from rigging.testing import eventually


def test_it_returns_what_the_condition_found() -> None:
    answers = iter([None, [], ["here"]])
    assert eventually(lambda: next(answers), "something is here") == ["here"]


@pytest.mark.parametrize(
    ("found", "instead", "message"),
    [
        (False, None, "not within 0.01 s: it is up"),
        (None, None, "not within 0.01 s: it is up"),
        ([], None, "not within 0.01 s: it is up, but []"),
        (0, None, "not within 0.01 s: it is up, but 0"),
        (False, lambda: "down", "not within 0.01 s: it is up, but 'down'"),
        (False, lambda: None, "not within 0.01 s: it is up, but None"),
    ],
)
def test_what_did_not_come_is_named_with_what_was_there(found: object, instead: object, message: str) -> None:
    with pytest.raises(AssertionError) as caught:
        eventually(lambda: found, "it is up", 0.01, instead)  # type: ignore[arg-type]
    assert str(caught.value) == message
