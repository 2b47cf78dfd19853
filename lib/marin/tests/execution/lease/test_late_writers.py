"""A holder that was away for too long, or lost its lease, writes nothing over its successor's output."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from marin.execution.lease.keeper import LeaseKeeper
from marin.execution.lease.opening import open_step_lease
from marin.execution.lease.step_lease import LeaseTerms, StepLease
from rigging.distributed_lock import LeaseLostError
from rigging.filesystem import atomic_write, open_url
from support.rigging.clock import FakeClock


@pytest.fixture(params=["memory", "local"])
def output(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    prefix = str(tmp_path) if request.param == "local" else f"memory://{tmp_path.name}"
    monkeypatch.setenv("MARIN_PREFIX", prefix)
    return f"{prefix}/step-abc"


def by_open_url(output: str) -> None:
    with open_url(f"{output}/data/part", "wb") as stream:
        stream.write(b"x")


def by_atomic_write(output: str) -> None:
    with atomic_write(f"{output}/data/part") as stream:
        stream.write(b"x")


def by_mirror(output: str) -> None:
    fsspec.filesystem("mirror").pipe_file("step-abc/data/part", b"x")


def by_opening_the_mirror(output: str) -> None:
    with fsspec.open("mirror://step-abc/data/part", "wb") as stream:
        stream.write(b"x")


WRITERS = [by_open_url, by_atomic_write, by_mirror, by_opening_the_mirror]


def begun(output: str, clock: FakeClock) -> tuple[LeaseKeeper, StepLease]:
    terms = LeaseTerms(renew_seconds=80.0, timeout_seconds=90.0, clock=clock)
    keeper, lease = LeaseKeeper(terms), open_step_lease(output, "s", terms)
    assert lease.begin(force_run_failed=True)
    keeper.keep(lease, lambda: None)
    return keeper, lease


@pytest.mark.parametrize("write", WRITERS)
def test_a_holder_that_was_stopped_for_longer_than_its_lease_writes_nothing(
    write: Callable[[str], Any], output: str
) -> None:
    clock = FakeClock()
    keeper, lease = begun(output, clock)
    try:
        write(output)
        clock.advance(89)
        write(output)
        clock.advance(2)
        with pytest.raises(LeaseLostError, match=r"step-abc/data/part is not written: .*not renewed for 91 s"):
            write(output)
        with open_url(f"{output}/data/part") as stream:
            assert stream.read() == b"x", "what is there may be read"
        by_open_url(f"{output}-other")
        lease.renew()
        write(output)
    finally:
        keeper.drop(lease)
        keeper.stop()


def test_what_a_lost_attempt_still_writes_is_refused_until_another_begins_here(output: str) -> None:
    clock = FakeClock()
    keeper, lease = begun(output, clock)
    lease.lost_event.set()
    keeper.drop(lease)
    with pytest.raises(LeaseLostError, match="was lost, and another run may be making this output"):
        by_open_url(output)
    keeper.keep(successor := open_step_lease(output, "s", LeaseTerms(clock=clock)), lambda: None)
    by_open_url(output)
    keeper.drop(successor)
    keeper.stop()


def test_a_file_that_is_being_written_when_the_lease_is_lost_does_not_appear(output: str) -> None:
    clock = FakeClock()
    keeper, lease = begun(output, clock)

    def write_long() -> None:
        with atomic_write(f"{output}/data") as stream:
            stream.write(b"x")
            clock.advance(100)

    with pytest.raises(LeaseLostError):
        write_long()
    fs, path = fsspec.core.url_to_fs(f"{output}/data")
    assert not fs.exists(path)
    keeper.drop(lease)
    keeper.stop()


def test_an_interrupted_function_may_clean_up(output: str) -> None:
    keeper, lease = begun(output, FakeClock())
    lease.interrupt()
    by_open_url(output)
    with open_url(f"{output}/data/part") as stream:
        assert stream.read() == b"x"
    keeper.drop(lease)
    keeper.stop()
