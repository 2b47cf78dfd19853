import asyncio
import concurrent.futures
import contextlib
import os
import pickle
import signal
import threading

import pytest

from rigging.errors import BudgetExceeded, InvalidRequest
from rigging.filesystem import budget as budget_module
from rigging.filesystem.budget import (
    GB,
    ProcessBudget,
    TransferBudget,
    TransferBudgetExceeded,
    budget_environment,
    current_budget,
    mirror_budget,
)
from rigging.filesystem.region_check import record_transfer


def test_what_does_not_fit_is_refused_with_path_size_used_limit_and_the_way_out_and_is_not_counted() -> None:
    budget = TransferBudget(3 * GB)
    budget.record(2 * GB, "gs://b/a")
    with pytest.raises(TransferBudgetExceeded) as refused:
        budget.record(GB + 1, "gs://b/big")
    message = str(refused.value)
    for part in ("gs://b/big", str(GB + 1), "2.00 GB used of 3.00 GB", "mirror_budget(", "MARIN_MIRROR_BUDGET_GB"):
        assert part in message
    assert isinstance(refused.value, BudgetExceeded)
    assert not refused.value.retryable
    assert str(pickle.loads(pickle.dumps(refused.value))) == message
    assert budget.bytes_used == 2 * GB
    budget.record(GB, "gs://b/fits")
    budget.record(0, "gs://b/empty")
    assert (budget.bytes_used, budget.limit_bytes, budget.bytes_left) == (3 * GB, 3 * GB, 0)
    with pytest.raises(TransferBudgetExceeded):
        budget.record(1, "gs://b/a")


def test_reservation_is_given_back_unless_settled(caplog: pytest.LogCaptureFixture) -> None:
    budget = TransferBudget(100)
    with budget.reserve(80, "a") as reservation:
        assert budget.bytes_used == 80, "taken before the bytes move"
        with pytest.raises(TransferBudgetExceeded):
            budget.reserve(30, "b")
    assert budget.bytes_used == 0
    with pytest.raises(OSError, match="lost"), budget.reserve(80, "a"):
        raise OSError("lost")
    assert budget.bytes_used == 0
    with budget.reserve(80, "a") as reservation:
        reservation.settle(30)
        reservation.settle(70)
    assert budget.bytes_used == 30, "only the first settling counts"
    assert not caplog.records
    with budget.reserve(60, "gs://b/grew") as reservation:
        reservation.settle(90)
    assert (budget.bytes_used, budget.bytes_left) == (120, 0), "what moved counts even beyond the reservation"
    assert "gs://b/grew" in caplog.text
    with pytest.raises(TransferBudgetExceeded):
        budget.reserve(1, "next")


def test_parts_of_a_reservation_are_settled_by_themselves() -> None:
    budget = TransferBudget(1000)
    with budget.reserve(900, "files") as whole:
        first, second = whole.take(400, "first"), whole.take(300, "second")
        assert (whole.bytes_reserved, budget.bytes_used) == (200, 900), "taking a part charges nothing again"
        first.settle(350)
        second.release()
        assert budget.bytes_used == 350 + 200
        with pytest.raises(TransferBudgetExceeded, match="has grown"):
            whole.take(700, "has grown")
        assert (whole.bytes_reserved, budget.bytes_used) == (200, 550)
        grown = whole.take(600, "has grown")
        assert budget.bytes_used == 950, "what is more than the rest is reserved anew"
        grown.settle(450)
        assert budget.bytes_used == 800
    assert budget.bytes_used == 800
    with budget.reserve(200, "more") as whole:
        whole.take(50, "a").settle(50)
    assert budget.bytes_used == 850, "what was not taken is given back"


def test_reset_forgets_use_and_outstanding_reservations() -> None:
    budget = TransferBudget(100)
    before = budget.reserve(60, "a")
    budget.reset()
    assert (budget.bytes_used, budget.limit_bytes) == (0, 100)
    budget.reset(500)
    assert budget.limit_bytes == 500
    before.take(30, "part of a").settle(30)
    before.release()
    assert budget.bytes_used == 0, "a reservation of before must not make bytes_used negative"


def test_what_is_no_amount_is_refused() -> None:
    for make in (lambda: TransferBudget(-1), lambda: TransferBudget(9).reserve(-1, "a")):
        with pytest.raises(InvalidRequest, match="-1"):
            make()
    for gb in (-0.1, float("nan"), float("inf"), "1", True, [1]):
        with pytest.raises(InvalidRequest, match=r"mirror_budget: .*GB"), mirror_budget(gb):  # type: ignore[arg-type]
            pass


def test_concurrent_reservations_never_pass_the_limit_and_none_is_lost() -> None:
    budget = TransferBudget(1000)
    granted = []

    def worker(_: int) -> None:
        for _ in range(400):
            with contextlib.suppress(TransferBudgetExceeded), budget.reserve(3, "x") as reservation:
                assert budget.bytes_used <= 1000
                reservation.settle(1)
                granted.append(1)

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(worker, range(8)))
    # The last two bytes cannot be taken by reservations of three.
    assert budget.bytes_used == len(granted) == 998


def test_blocks_nest_and_have_their_own_count_also_in_tasks() -> None:
    async def charge() -> TransferBudget:
        current_budget().record(5, "x")
        return current_budget()

    async def main() -> TransferBudget:
        return await asyncio.create_task(charge())

    outside = current_budget()
    with mirror_budget(2) as outer:
        assert current_budget() is outer
        assert outer.limit_bytes == 2 * GB
        with mirror_budget(0.5) as inner:
            current_budget().record(7, "a")
            assert current_budget() is asyncio.run(main()) is inner
        current_budget().record(1, "a")
    assert (outer.bytes_used, inner.bytes_used) == (1, 12)
    assert current_budget() is outside


def test_threads_started_in_a_block_inherit_its_budget_and_so_do_their_threads() -> None:
    seen: dict[str, TransferBudget] = {}

    def look(name: str) -> None:
        seen[name] = current_budget()

    def parent() -> None:
        look("child")
        run(lambda: look("grandchild"))

    def run(target) -> None:
        thread = threading.Thread(target=target)
        thread.start()
        thread.join()

    gate = threading.Event()
    earlier = threading.Thread(target=lambda: (gate.wait(30), look("earlier")))
    earlier.start()
    with mirror_budget(1) as budget:
        run(parent)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            pool.submit(look, "executor").result()
        gate.set()
        earlier.join()
    run(lambda: look("later"))
    assert seen["child"] is seen["grandchild"] is seen["executor"] is budget
    assert seen["earlier"] is seen["later"] is current_budget()


def test_the_process_budget_follows_the_environment_and_keeps_what_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    process = ProcessBudget()
    monkeypatch.delenv("MARIN_MIRROR_BUDGET_GB", raising=False)
    assert process.current().limit_bytes == 10 * GB
    process.current().record(9, "x")
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "0.5")
    assert (process.current().limit_bytes, process.current().bytes_used) == (GB // 2, 9)
    assert current_budget().limit_bytes == GB // 2
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "lots")
    for budget in (process.current, current_budget):
        with pytest.raises(InvalidRequest, match="MARIN_MIRROR_BUDGET_GB='lots'"):
            budget()


def test_what_is_left_is_carried_into_other_processes_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    with mirror_budget(3) as budget:
        budget.record(1234567891, "x")
        left = budget.bytes_left
        carried = budget_environment()
    for name, value in carried.items():
        monkeypatch.setenv(name, value)
    assert ProcessBudget().current().limit_bytes == current_budget().limit_bytes == left
    with mirror_budget(1) as budget:
        budget.record(GB, "x")
        assert budget_environment() == {"MARIN_MIRROR_BUDGET_GB": "0.0"}


@pytest.mark.parametrize(
    ("url", "charged"),
    [
        ("/checkpoints/1", 0), ("file:///checkpoints/1", 0), ("memory://checkpoints/1", 0),
        ("mirror://checkpoints/1", 0), ("gs://marin-us-central2/checkpoints/1", 0),
        ("gs://no-such-bucket-anywhere/1", 0), ("s3://not-in-any-table/1", 0),
        ("gs://marin-eu-west4/checkpoints/1", 7), ("gcs://marin-eu-west4/checkpoints/1", 7),
    ],
)  # fmt: skip
def test_transfers_of_programs(url: str, charged: int, gcs_server: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_PREFIX", "gs://marin-us-central2")
    with mirror_budget(1) as budget:
        record_transfer(7, url)
        assert budget.bytes_used == charged
        monkeypatch.setenv("MARIN_I_WILL_PAY_FOR_ALL_FEES", "somebody")
        record_transfer(7, url)
        assert budget.bytes_used == charged
    own = TransferBudget(10)
    monkeypatch.delenv("MARIN_I_WILL_PAY_FOR_ALL_FEES")
    record_transfer(7, url, budget=own)
    assert own.bytes_used == charged
    if charged:
        with pytest.raises(TransferBudgetExceeded, match="marin-eu-west4"):
            record_transfer(11, url, budget=own)
    # Where this machine is is not known: nothing crosses.
    monkeypatch.setenv("MARIN_PREFIX", "/somewhere")
    record_transfer(7, url, budget=own)
    assert own.bytes_used == charged


def test_a_fork_in_the_middle_of_counting_counts_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that has the locks does not exist in the child, which would wait for ever."""
    monkeypatch.setenv("MARIN_MIRROR_BUDGET_GB", "1")
    own = TransferBudget(10)
    with budget_module._counting:
        child = os.fork()
        if child == 0:
            signal.alarm(10)  # its default action ends it, and that is seen
            os.environ["MARIN_MIRROR_BUDGET_GB"] = "2"
            own.record(1, "x")
            os._exit(0 if own.bytes_used == 1 and current_budget().limit_bytes == 2 * GB else 1)
    assert os.waitpid(child, 0)[1] == 0
