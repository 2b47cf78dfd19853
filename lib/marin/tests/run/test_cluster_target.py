"""Which cluster is meant, and which token it gets."""

from pathlib import Path

import pytest

from marin.run.auth_token import find_token
from marin.run.cluster_target import DEFAULT_ADDRESS, find_target, read_cluster_file
from rigging.errors import Denied, InvalidRequest, NotFound

FILE = "cluster_name: marin\nprovider: {type: local, head_ip: 127.0.0.1}\n"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "pyproject.toml").write_text("[tool.uv.workspace]\n")
    infra = tmp_path / "infra"
    infra.mkdir()
    for name in ("marin-cluster", "marin-us-central2", "marin-cluster-template"):
        (infra / f"{name}.yaml").write_text(FILE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("us-central2", "marin-us-central2"),
        ("marin-us-central2", "marin-us-central2"),
        ("marin-cluster", "marin-cluster"),
        ("infra/marin-cluster.yaml", "marin-cluster"),
        ("marin-cluster.yaml", "marin-cluster"),
    ],
)
def test_a_cluster_by_name_or_file(root: Path, name: str, file: str) -> None:
    target = find_target(name, {"RAY_ADDRESS": "http://other:1"})
    assert (target.file, target.address) == (root / "infra" / f"{file}.yaml", "")


@pytest.mark.parametrize(
    ("environ", "address", "bootstrap"),
    [
        ({}, DEFAULT_ADDRESS, False),
        ({"RAY_ADDRESS": "http://127.0.0.1:8265/"}, "http://127.0.0.1:8265", False),
        ({"RAY_ADDRESS": "http://a:1", "RAY_API_SERVER_ADDRESS": "https://b:2"}, "https://b:2", False),
        ({"RAY_ADDRESS": "auto"}, "auto", True),
        ({"RAY_ADDRESS": "ray://h:10001"}, "ray://h:10001", True),
        ({"RAY_ADDRESS": "10.0.0.1:6379"}, "10.0.0.1:6379", True),
    ],
)
def test_an_address_of_the_environment(environ: dict[str, str], address: str, bootstrap: bool) -> None:
    target = find_target(None, environ)
    assert (target.address, target.bootstrap, target.file) == (address, bootstrap, None)


def test_a_url_is_taken_as_it_is() -> None:
    assert find_target("http://h:8265", {"RAY_ADDRESS": "http://other:1"}).address == "http://h:8265"


@pytest.mark.parametrize("text", ["gopher://x", "http://", "host", "h:port"])
def test_what_is_no_address_is_refused_with_its_origin(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"RAY_ADDRESS: .* is no address"):
        find_target(None, {"RAY_ADDRESS": text})


def test_an_unknown_name_lists_those_there_are(root: Path) -> None:
    with pytest.raises(NotFound, match=r"no cluster named 'marin-us-centra'; did you mean 'marin-us-central2'\?"):
        find_target("marin-us-centra", {})
    with pytest.raises(NotFound, match=r"no cluster file 'infra/none\.yaml'.*marin-cluster, marin-us-central2$"):
        find_target("infra/none.yaml", {})


def test_a_file_that_is_no_cluster_file_is_refused(root: Path) -> None:
    (root / "infra" / "notes.yaml").write_text("a: 1\n")
    with pytest.raises(InvalidRequest, match=r"notes\.yaml is no Ray cluster file"):
        find_target("notes", {})


def test_the_users_token(tmp_path: Path) -> None:
    assert find_token({}, tmp_path).value == ""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray" / "auth_token").write_text("mine\n")
    (tmp_path / "other").write_text("theirs")
    found = find_token({}, tmp_path)
    assert (found.value, found.always) == ("mine", False)
    assert find_token({"RAY_AUTH_MODE": "token"}, tmp_path).always
    assert find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "other")}, tmp_path).value == "theirs"
    assert find_token({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "token"}, tmp_path).value == "t"
    assert find_token({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "disabled"}, tmp_path).value == ""
    assert "mine" not in repr(found)
    with pytest.raises(Denied, match=r"RAY_AUTH_TOKEN_PATH: the token file .*none"):
        find_token({"RAY_AUTH_TOKEN_PATH": str(tmp_path / "none")}, tmp_path)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot be read"),
        ("a: [", "cannot be read"),
        ("- a", "is no Ray cluster file"),
        ("provider: {type: gcp}", "is no Ray cluster file"),
        ("cluster_name: a\nprovider: gcp", "is no Ray cluster file"),
    ],
)
def test_a_file_that_describes_no_cluster_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "c.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidRequest, match=f"{file} {said}"):
        read_cluster_file(file)
