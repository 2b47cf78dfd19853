"""A controller on a damaged state directory: no traceback, no empty cluster, but the command that helps."""

from pathlib import Path

import pytest

from iris.cli.main import run
from iris.rpc.auth import PrincipalKind, load_or_create_secret, make_token
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import call_metadata
from iris.store.store import Store
from rigging.errors import MarinError
from support.iris.controller import ControllerStubs
from support.iris.controller_process import ControllerProcess
from support.iris.users import job_spec

pytestmark = pytest.mark.process


def used(state: Path, remote: Path | None = None) -> None:
    process = ControllerProcess(state, remote_state_dir=str(remote) if remote else "")
    token = make_token(load_or_create_secret(state / "secret"), PrincipalKind.USER, "ann")
    stubs = ControllerStubs(process.address, call_metadata(token))
    for number in range(20):
        stubs.jobs.SubmitJob(pb.SubmitJobRequest(spec=job_spec(f"/ann/j{number}")))
    stubs.close()
    process.kill()


def damage(state: Path) -> None:
    (state / "iris.db").write_bytes(b"")
    for suffix in ("-wal", "-shm"):
        (state / f"iris.db{suffix}").unlink(missing_ok=True)


def test_with_a_remote_state_what_restores_is_told_and_works(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    state, remote = tmp_path / "state", tmp_path / "remote"
    used(state, remote)
    damage(state)
    with pytest.raises(MarinError) as told:
        ControllerProcess(state, remote_state_dir=str(remote))
    command = f"iris cluster controller restore --state-dir {state} --remote-state-dir {remote}"
    assert f"`{command}` gets the state back" in str(told.value)
    capfd.readouterr()
    assert run(command.split()[1:]) == 0
    assert f"{state}/damaged-" in capfd.readouterr().err
    process = ControllerProcess(state, remote_state_dir=str(remote))
    process.kill()
    store = Store.open(state, generation=99)
    assert len(store.load().jobs) == 20
    store.close()
