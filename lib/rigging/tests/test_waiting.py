"""`eventually`: what it returns, and what it says when nothing comes."""

import asyncio

import pytest

from fray.testing.waiting import eventually, eventually_async


def test_it_returns_what_the_condition_found_and_a_loop_goes_on_meanwhile() -> None:
    answers = iter([None, [], ["here"]])
    assert eventually(lambda: next(answers), "something is here") == ["here"]

    async def scenario() -> list[int]:
        found: list[int] = []
        asyncio.get_running_loop().call_later(0.01, found.append, 7)
        return await eventually_async(lambda: found, "it is found")

    assert asyncio.run(scenario()) == [7]


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
    with pytest.raises(AssertionError, match=r"^not within 0\.01 s: it is up"):
        asyncio.run(eventually_async(lambda: found, "it is up", timeout=0.01))
