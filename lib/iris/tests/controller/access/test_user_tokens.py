"""Tokens of users: each is good until it is revoked, and then also what it has open ends."""

import asyncio

import pytest

from iris.controller.access.open_calls import OpenCalls
from iris.rpc.auth import Principal, PrincipalKind, Unauthenticated, is_kept, make_token
from rigging.errors import InvalidRequest, NotFound

from .conftest import House

SIGNED = Principal(PrincipalKind.USER, "ann")


def test_each_is_revoked_by_itself_and_stays_so(house: House) -> None:
    told: list[str] = []
    house.credentials.users.listen(lambda token_id, why: told.append(f"{token_id}: {why}"))
    (one, first), (_, second) = (
        house.credentials.users.create("ann", "", "admin root"),
        house.credentials.users.create("ann", "", "admin root"),
    )
    revoked = house.credentials.users.revoke(one.token_id, "admin root")
    assert (revoked.revoked_by, revoked.revoked_at_ms) == ("admin root", 1_000_000)
    assert house.credentials.users.revoke(one.token_id, "admin eve") == revoked, "repeating it changes nothing"
    words = f"the token {one.token_id} of user ann was revoked by admin root; an admin makes a new one"
    for found in (house, house.again()):
        with pytest.raises(Unauthenticated, match=words):
            found.credentials.verify(first)
        assert found.credentials.verify(second).name == "ann"
    assert len(told) == 1
    assert told[0].startswith(f"{one.token_id}: {words}")


def test_another_secret_another_user_and_an_unknown_id_are_refused(house: House) -> None:
    made, text = house.credentials.users.create("ann", "", "admin root")
    secret = text.rpartition(".")[2]
    for wrong in (text[:-1] + "!", f"u:bob:{made.token_id}.{secret}", f"u:ann:ffff.{secret}", "u:ann:."):
        with pytest.raises(Unauthenticated, match="was not made by this cluster"):
            house.credentials.verify(wrong)


def test_what_earlier_releases_signed_is_revoked_for_a_user_at_once(house: House) -> None:
    assert not is_kept(make_token(b"secret", PrincipalKind.USER, "ann"))
    house.credentials.users.check(SIGNED)
    house.credentials.users.revoke("signed-ann", "admin root")
    for found in (house, house.again()):
        with pytest.raises(Unauthenticated, match="the token signed-ann of user ann was revoked by admin root"):
            found.credentials.users.check(SIGNED)
        found.credentials.users.check(Principal(PrincipalKind.USER, "bob"))
        found.credentials.users.check(Principal(PrincipalKind.ADMIN, "ann"))


def test_what_is_none_is_told(house: House) -> None:
    for name in ("", "nope", "signed-"):
        with pytest.raises(NotFound, match=f"no token '{name}' of a user; `iris user token list`"):
            house.credentials.users.revoke(name, "admin root")
    with pytest.raises(InvalidRequest, match="the note must be one printable line"):
        house.credentials.users.create("ann", "two\nlines", "admin root")
    assert house.credentials.users.tokens() == []


async def test_calls_of_one_token_end_and_no_others() -> None:
    calls, never, begun = OpenCalls(), asyncio.Event(), asyncio.Barrier(4)

    async def call(token_id: str) -> str:
        with calls.under(token_id):
            await begun.wait()
            await never.wait()
        return "done"

    tasks = [asyncio.create_task(call(token_id)) for token_id in ("a", "a", "b")]
    await begun.wait()
    calls.end("a", Unauthenticated("revoked"))
    calls.end("unknown", Unauthenticated("revoked"))
    ended = await asyncio.gather(*tasks[:2], return_exceptions=True)
    assert list(map(repr, ended)) == ["Unauthenticated('revoked')"] * 2
    assert not tasks[2].done()
    never.set()
    assert await tasks[2] == "done"
    assert len(calls) == 0, "nothing is kept of a call that is over"


async def test_a_call_whose_caller_goes_away_is_cancelled_as_ever() -> None:
    calls, begun = OpenCalls(), asyncio.Event()

    async def call() -> None:
        with calls.under("a"):
            begun.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(call())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
