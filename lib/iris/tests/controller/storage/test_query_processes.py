"""Queries that would hold up a controller are ended, each with the words of the limit that it met, and nobody waits."""

import asyncio
import time
from pathlib import Path

import pytest

from iris.controller.storage import query_processes
from iris.controller.storage.query_processes import QueryProcesses
from iris.rpc.generated import iris_pb2 as pb
from iris.store.store import Store
from rigging.errors import BudgetExceeded, InvalidRequest, MarinError

NUMBERS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)"
LONG_STEP = "SELECT printf('%.*c', 2000000000, 'x')"


async def error_of(queries: QueryProcesses, sql: str, user: str = "ann") -> MarinError:
    with pytest.raises(MarinError) as caught:
        await queries.ask(user, sql, 0, None)
    return caught.value


@pytest.mark.process
async def test_a_query_meets_its_limits_and_the_next_one_is_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store.open(tmp_path, generation=1).close()
    queries = QueryProcesses(tmp_path, time_limit_s=2.0)
    for sql, kind, words in (
        (LONG_STEP, BudgetExceeded, "the query took longer than 2 s and was stopped"),
        (f"{NUMBERS} SELECT count(*) FROM n", BudgetExceeded, "the query took longer than 2 s and was stopped"),
        (
            f"{NUMBERS} SELECT i, zeroblob(4000000) AS x FROM n ORDER BY x",
            BudgetExceeded,
            "the query needed more than 512 MiB of memory and was stopped",
        ),
        ("SELEC 1", InvalidRequest, 'near "SELEC": syntax error'),
    ):
        began = time.monotonic()
        patient = QueryProcesses(tmp_path, time_limit_s=30.0)  # how long it takes to fill its memory is the machine's
        error = await error_of(patient if "memory" in words else queries, sql)
        assert isinstance(error, kind)
        assert words in str(error)
        assert "memory" in words or time.monotonic() - began < 10
        await patient.close()
    for _ in range(2):
        answer = pb.QueryResponse.FromString(await queries.ask("ann", "SELECT 1", 0, None))
        assert answer.rows[0].values[0].integer == 1
    monkeypatch.setattr(query_processes, "_LONGEST_ANSWER", 5)
    assert "at most 5 are allowed" in str(await error_of(queries, "SELECT 'long enough'"))
    await queries.close()


@pytest.mark.process
async def test_a_user_has_one_query_at_a_time_and_others_do_not_wait_for_it(tmp_path: Path) -> None:
    Store.open(tmp_path, generation=1).close()
    queries = QueryProcesses(tmp_path, time_limit_s=4.0, turn_s=0.1, at_once=2)
    slow = [asyncio.create_task(error_of(queries, LONG_STEP)) for _ in range(8)]
    await asyncio.wait(slow[1:])
    for refused in slow[1:]:
        assert "a query of ann is still being answered, and a user has one at a time" in str(refused.result())
    assert await queries.ask("bob", "SELECT 1", 0, "bob")
    assert not slow[0].done()
    slow.append(asyncio.create_task(error_of(queries, LONG_STEP, "bob")))
    await asyncio.sleep(0)  # its turn comes at once
    assert "queries of 2 other users are being answered" in str(await error_of(queries, "SELECT 1", "eve"))
    assert "took longer than 4 s" in str(await slow[0])
    assert "took longer than 4 s" in str(await slow[-1])
    assert await queries.ask("ann", "SELECT 1", 0, None)
    await queries.close()
