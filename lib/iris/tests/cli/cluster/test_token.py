"""Commands about who may join: token, certs, worker, install-service."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from iris.cli import exit_codes
from iris.cli.cluster.hosts import clock_lines, host_cells
from iris.cli.cluster.token import parse_lifetime
from iris.cli.context import CliContext
from iris.cli.main import run
from iris.client.tokens import JoinTokenStatus, UserTokenStatus
from iris.client.types import WorkerStatus
from rigging.errors import InvalidRequest, NotFound

MADE = JoinTokenStatus("abcd", "", "admin root", 1, 10**13, 2, 1, "", 0, ("w1",))


class Operator:
    def __init__(self) -> None:
        self.asked: list[Any] = []

    def create_join_token(self, **given: Any) -> tuple[str, JoinTokenStatus]:
        self.asked.append(given)
        return "iris-join-v1.text", MADE

    def join_tokens(self) -> list[JoinTokenStatus]:
        return [MADE]

    def revoke_user_token(self, token_id: str) -> UserTokenStatus:
        if token_id != "ab12":
            raise NotFound("no token of a user")
        return UserTokenStatus("ab12", "ann", "", "admin root", 1)

    def revoke_join_token(self, token_id: str) -> JoinTokenStatus:
        if token_id != "abcd":
            raise NotFound(f"no join token {token_id!r}")
        self.asked.append(token_id)
        return MADE

    def revoke_worker(self, name: str, reason: str) -> bool:
        self.asked.append((name, reason))
        return True


@pytest.fixture
def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    found = Operator()

    @contextlib.contextmanager
    def client(self: CliContext, workspace: Path | None = None) -> Iterator[SimpleNamespace]:
        yield SimpleNamespace(operator=found)

    monkeypatch.setattr(CliContext, "client", client)
    return found


def test_a_token_is_made_listed_and_revoked(
    operator: Operator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", "token", "create", "--expires", "2h", "--uses", "2", "--note", "rack"]) == 0
    assert operator.asked == [{"lifetime_ms": 7_200_000, "max_uses": 2, "note": "rack"}]
    said = capsys.readouterr()
    assert said.out == "iris-join-v1.text\n"
    assert "join token abcd: for 2 workers, until " in said.err
    place = tmp_path / "token"
    assert run(["cluster", "token", "create", "--output", str(place)]) == 0
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("iris-join-v1.text\n", 0o600)
    assert "iris-join" not in "".join(capsys.readouterr())
    assert run(["cluster", "token", "list"]) == 0
    assert "good   1/2" in capsys.readouterr().out
    assert run(["cluster", "token", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["workers"] == ["w1"]
    assert run(["cluster", "token", "revoke", "abcd"]) == 0
    assert "the join token abcd is revoked; w1 joined with it, and stay" in capsys.readouterr().err


def test_tokens_of_users_are_revoked_by_their_ids_too(operator: Operator, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["cluster", "token", "revoke", "ab12"]) == 0
    assert "the token ab12 of user ann is revoked; jobs of ann go on" in capsys.readouterr().err
    assert run(["cluster", "token", "revoke", "nope"]) == 4
    assert "no join token 'nope'" in capsys.readouterr().err


def test_a_worker_is_revoked(operator: Operator, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["worker", "revoke", "w1", "--reason", "sold"]) == 0
    assert operator.asked == [("w1", "sold")]
    assert "worker w1 is revoked; its session has ended" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "0s", "1", "1w", "-1h", "1.5h"])
def test_a_lifetime_is_a_number_and_a_unit(text: str) -> None:
    with pytest.raises(click.UsageError, match="write a whole number and s, m, h or d"):
        parse_lifetime(text)
    assert [parse_lifetime(word) for word in ("90s", "30m", "24h", "7d")] == [
        90_000, 1_800_000, 86_400_000, 604_800_000,
    ]  # fmt: skip


def test_certificates_are_made_shown_and_renewed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown = []
    for more in (("--make",), (), ("--renew",)):
        assert run(["cluster", "certs", "--state-dir", str(tmp_path / "s"), "--json", *more]) == 0
        shown.append((json.loads(capsys.readouterr().out)["ca_sha256"], (tmp_path / "s/tls/server.pem").read_bytes()))
    assert len({ca for ca, _ in shown}) == 1
    assert shown[0][1] == shown[1][1] != shown[2][1]


@pytest.mark.parametrize("more", [(), ("--renew",)])
def test_no_authority_comes_of_a_mistyped_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert run(["cluster", "certs", "--state-dir", str(tmp_path / "typo"), *more]) == exit_codes.NOT_FOUND
    assert f"is {tmp_path}/typo the controller's --state-dir?" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_services_run_the_command_with_the_same_options(capsys: pytest.CaptureFixture[str]) -> None:
    given = "--controller 10.0.0.1:7077 --join-token-file t --cpu 2 --attributes a=b --insecure --print"
    assert run(["worker", "install-service", *given.split()]) == 0
    unit = capsys.readouterr().out.splitlines()
    (line,) = [line for line in unit if line.startswith("ExecStart=")]
    assert "Delegate=yes" in unit
    token = Path("t").absolute()
    assert line.endswith(
        f"worker start --controller 10.0.0.1:7077 --join-token-file {token} --cpu 2 --attributes a=b --insecure "
        "--work-dir /var/lib/iris-worker"
    )
    assert run(["worker", "install-service", *given.split(), "--limits", "soft"]) == 0
    assert "Delegate" not in capsys.readouterr().out, "soft limits need no control groups"
    assert run(["cluster", "controller", "install-service", "--host", "0.0.0.0", "--port", "7077", "--print"]) == 0
    assert "controller serve --host 0.0.0.0 --port 7077 --state-dir /var/lib/iris" in capsys.readouterr().out
    assert run(["cluster", "controller", "install-service", "--print"]) == 2
    assert "give --port" in capsys.readouterr().err


def test_a_service_declares_devices_that_there_can_be(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["worker", "install-service", "--controller", "10.0.0.1:7077", "--print"]
    assert run([*given, "--tpu", "v4-16", "--slice", "a", "--slice-index", "0"]) == 0
    assert "--tpu v4-16 --slice a --slice-index 0" in capsys.readouterr().out
    assert run([*given, "--gpu", "8"]) != 0
    assert "--gpu '8': write TYPE:N" in capsys.readouterr().err


def test_clocks_that_are_far_off_are_told() -> None:
    def worker(skew_ms: int | None, error_ms: int = 1) -> WorkerStatus:
        return WorkerStatus(
            "w1", True, 1, 1, 1, "", 0, 0, 0, address="10.0.0.2", version="0.1", protocol_version=2,
            clock_skew_ms=skew_ms, clock_error_ms=error_ms,
        )  # fmt: skip

    assert host_cells(worker(-1500, 20)) == ("10.0.0.2", "0.1 (protocol 2)", "-1.500 s ±0.020")
    assert host_cells(worker(None))[2] == "-"
    assert clock_lines([worker(None), worker(5000), worker(-4000), worker(6000, 2000)]) == []
    (line,) = clock_lines([worker(-600_000)])
    assert line.startswith("clock:      w1 is 10 min 0 s behind the controller; nothing waits for clocks")


def test_no_token_is_made_that_cannot_be_written(
    operator: Operator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for place, words in ((taken, "File exists"), (tmp_path / "none" / "x", "No such file or directory")):
        assert run(["cluster", "token", "create", "--output", str(place)]) == 3
        assert f"cannot write {place}: {words}" in capsys.readouterr().err
    assert operator.asked == []
    assert taken.read_text() == "mine"


def test_nothing_is_left_where_no_token_was_made(operator: Operator, tmp_path: Path) -> None:
    def refuse(**given: Any) -> Any:
        raise InvalidRequest("the note must be one printable line")

    operator.create_join_token = refuse  # type: ignore[method-assign]
    assert run(["cluster", "token", "create", "--output", str(tmp_path / "x")]) == 3
    assert list(tmp_path.iterdir()) == []
