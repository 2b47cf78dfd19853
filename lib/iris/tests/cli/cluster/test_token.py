"""Commands about who may join: token, certs, worker, install-service; what hosts say of their clocks."""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import call

import click
import pytest

from iris.cli.cluster.hosts import clock_lines, host_cells, rival_lines, shared_identity_lines
from iris.cli.cluster.token import parse_lifetime
from iris.client.tokens import JoinTokenStatus, UserTokenStatus
from iris.client.types import WorkerStatus
from iris.domain.constraints import TASK_USERS_ATTRIBUTE
from rigging.errors import InvalidRequest, NotFound
from support.iris.cli import Client, Iris

MADE = JoinTokenStatus("abcd", "", "admin root", 1, 10**13, 2, 1, "", 0, ("w1",))


@pytest.fixture
def client() -> Client:
    client = Client()
    client.operator.create_join_token.return_value = ("iris-join-v1.text", MADE)
    client.operator.join_tokens.return_value = [MADE]
    return client


def test_a_token_is_made_listed_and_revoked(iris: Iris, client: Client, tmp_path: Path) -> None:
    code, out, said = iris("cluster", "token", "create", "--expires", "2h", "--uses", "2", "--note", "rack")
    assert (code, out) == (0, "iris-join-v1.text\n")
    assert "join token abcd: for 2 workers, until " in said
    assert client.operator.mock_calls == [call.create_join_token(lifetime_ms=7_200_000, max_uses=2, note="rack")]
    place = tmp_path / "token"
    code, out, said = iris("cluster", "token", "create", "--output", str(place))
    assert (code, "iris-join" in out + said) == (0, False)
    assert (place.read_text(), place.stat().st_mode & 0o777) == ("iris-join-v1.text\n", 0o600)
    assert "good   1/2" in iris("cluster", "token", "list")[1]
    assert json.loads(iris("cluster", "token", "list", "--json")[1])[0]["workers"] == ["w1"]
    client.operator.revoke_join_token.side_effect = [MADE, *[NotFound("no join token 'x'")] * 2]
    client.operator.revoke_user_token.side_effect = [
        UserTokenStatus("ab12", "ann", "", "admin root", 1),
        NotFound("no token of a user"),
    ]
    revoke = ("cluster", "token", "revoke")
    assert iris(*revoke, "abcd")[2] == "the join token abcd is revoked; w1 joined with it and remain\n"
    assert iris(*revoke, "ab12")[2] == "the token ab12 of user ann is revoked; jobs of ann continue\n"
    assert iris(*revoke, "x") == (4, "", "no join token 'x'\n")


def test_a_token_that_lets_nobody_join_says_why(iris: Iris, client: Client) -> None:
    revoked = {"revoked_by": "ann", "revoked_at_ms": 5}
    client.operator.join_tokens.return_value = [
        replace(MADE, uses=2), replace(MADE, expires_at_ms=10), replace(MADE, uses=2, **revoked),
    ]  # fmt: skip
    lines = iris("cluster", "token", "list")[1].splitlines()[1:]
    assert [line[7:].partition("  ")[0] for line in lines] == ["used up", "expired", "revoked by ann"]


def test_no_token_is_made_without_its_file_and_no_file_without_one(iris: Iris, client: Client, tmp_path: Path) -> None:
    taken = tmp_path / "taken"
    taken.write_text("mine")
    for place, words in ((taken, "File exists"), (tmp_path / "none" / "x", "No such file or directory")):
        code, _, said = iris("cluster", "token", "create", "--output", str(place))
        assert (code, f"cannot write {place}: {words}" in said) == (3, True)
    assert client.operator.mock_calls == []
    client.operator.create_join_token.side_effect = InvalidRequest("the note must be one printable line")
    assert iris("cluster", "token", "create", "--output", str(tmp_path / "x"))[0] == 3
    assert (list(tmp_path.iterdir()), taken.read_text()) == ([taken], "mine")


def test_a_worker_is_revoked(iris: Iris, client: Client) -> None:
    client.operator.revoke_worker.side_effect = [True, False]
    assert iris("worker", "revoke", "w1", "--reason", "sold")[2] == "worker w1 is revoked; its session has ended\n"
    assert iris("worker", "revoke", "w1")[2] == "worker w1 is revoked; it was not connected\n"
    assert client.operator.mock_calls == [call.revoke_worker("w1", "sold"), call.revoke_worker("w1", "")]


def test_a_lifetime_is_a_number_and_a_unit() -> None:
    found = [parse_lifetime(word) for word in ("90s", "30m", "24h", "7d")]
    assert found == [90_000, 1_800_000, 86_400_000, 604_800_000]
    for wrong in ("", "0s", "1", "1w", "-1h", "1.5h"):
        with pytest.raises(click.UsageError, match="write a whole number and s, m, h or d"):
            parse_lifetime(wrong)


def test_certificates_are_made_shown_and_renewed_but_never_at_a_mistyped_directory(iris: Iris, tmp_path: Path) -> None:
    shown = []
    for more in (("--make",), (), ("--renew",)):
        code, out, _ = iris("cluster", "certs", "--state-dir", str(tmp_path / "s"), "--json", *more)
        shown.append((json.loads(out)["ca_sha256"], (tmp_path / "s/tls/server.pem").read_bytes()))
        assert code == 0
    assert len({ca for ca, _ in shown}) == 1
    assert shown[0][1] == shown[1][1] != shown[2][1]
    for more in ((), ("--renew",)):
        code, _, said = iris("cluster", "certs", "--state-dir", str(tmp_path / "typo"), *more)
        assert (code, f"is {tmp_path}/typo the controller's --state-dir?" in said) == (4, True)
    assert not (tmp_path / "typo").exists()


def test_services_run_the_command_with_the_same_options(iris: Iris) -> None:
    def worker(*words: str) -> tuple[int, str, str]:
        options = ("--controller", "10.0.0.1:7077", "--print", "--task-users", "off")
        return iris("worker", "install-service", *options, *words)

    given = "--join-token-file t --cpu 2 --attributes a=b --insecure"
    unit = worker(*given.split())[1].splitlines()
    (line,) = [line for line in unit if line.startswith("ExecStart=")]
    assert "Delegate=yes" in unit
    assert line.endswith(
        f"worker start --controller 10.0.0.1:7077 --join-token-file {Path('t').absolute()} --cpu 2 --attributes a=b "
        "--insecure --work-dir /var/lib/iris-worker"
    )
    assert "Delegate" not in worker("--limits", "soft")[1], "soft limits need no control groups"
    declared = "--tpu v4-16 --slice a --slice-index 0"
    assert declared in worker(*declared.split())[1]
    code, _, said = worker("--gpu", "8")
    assert (code, "--gpu '8': write TYPE:N" in said) == (3, True)
    controller = ("cluster", "controller", "install-service", "--print")
    served = iris(*controller, "--host", "0.0.0.0", "--port", "7077")[1]
    assert "controller serve --host 0.0.0.0 --port 7077 --state-dir /var/lib/iris" in served
    for words, complaint in (((), "give --port"), (("--port", "7077", "--user"), "give --state-dir")):
        code, _, said = iris(*controller, *words)
        assert (code, complaint in said) == (2, True)


def test_clocks_that_are_far_off_and_names_that_two_hosts_use_are_told() -> None:
    def worker(skew_ms: int | None, error_ms: int = 1) -> WorkerStatus:
        return WorkerStatus(
            "w1", True, 1, 1, 1, "", 0, 0, 0, address="10.0.0.2", version="0.1", protocol_version=2,
            clock_skew_ms=skew_ms, clock_error_ms=error_ms,
        )  # fmt: skip

    assert host_cells(worker(-1500, 20)) == ("10.0.0.2", "0.1 (protocol 2)", "-1.500 s ±0.020")
    assert host_cells(worker(None))[2] == "-"
    assert clock_lines([worker(None), worker(5000), worker(-4000), worker(6000, 2000)]) == []
    behind, ahead = clock_lines([worker(-600_000), worker(600_000)])
    assert behind.startswith("clock:      w1 is 10 min 0 s behind the controller; times of its log lines")
    assert "10 min 0 s ahead of the controller" in ahead
    embedded = [replace(worker(None), address=address) for address in ("", "unix")]
    assert shared_identity_lines([*embedded, replace(worker(None), connected=False)]) == []
    assert (
        "on 2 hosts tasks run as their worker's user" in shared_identity_lines([worker(None), worker(1), *embedded])[0]
    )
    apart = replace(worker(None), attributes={TASK_USERS_ATTRIBUTE: "true"})
    assert shared_identity_lines([apart]) == []
    copied = replace(worker(None), rival_address="10.0.0.9")
    assert (rival_lines([worker(None)]), copied.state) == ([], "copied")
    assert (
        "w1 runs at 10.0.0.2, and a copy of its work directory at 10.0.0.9, which is refused"
        in rival_lines([copied])[0]
    )
