"""Which cluster is meant, and which token it gets."""

from pathlib import Path

import pytest

from marin.run.cluster_target import DEFAULT_ADDRESS, find_target, read_cluster_file
from rigging.errors import InvalidRequest, NotFound

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
    ("name", "environ", "address", "bootstrap", "file"),
    [
        (None, {}, DEFAULT_ADDRESS, False, None),
        (None, {"RAY_ADDRESS": "http://127.0.0.1:8265/"}, "http://127.0.0.1:8265", False, None),
        (None, {"RAY_ADDRESS": "http://a:1", "RAY_API_SERVER_ADDRESS": "https://b:2"}, "https://b:2", False, None),
        (None, {"RAY_ADDRESS": "auto"}, "auto", True, None),
        (None, {"RAY_ADDRESS": "ray://h:10001"}, "ray://h:10001", True, None),
        (None, {"RAY_ADDRESS": "10.0.0.1:6379"}, "10.0.0.1:6379", True, None),
        ("http://h:8265", {"RAY_ADDRESS": "http://other:1"}, "http://h:8265", False, None),
        ("us-central2", {"RAY_ADDRESS": "http://other:1"}, "", False, "marin-us-central2"),
        ("marin-us-central2", {}, "", False, "marin-us-central2"),
        ("marin-cluster", {}, "", False, "marin-cluster"),
        ("infra/marin-cluster.yaml", {}, "", False, "marin-cluster"),
        ("marin-cluster.yaml", {}, "", False, "marin-cluster"),
    ],
)
def test_an_address_of_the_environment(
    root: Path, name: str | None, environ: dict[str, str], address: str, bootstrap: bool, file: str | None
) -> None:
    target = find_target(name, environ)
    assert (target.address, target.bootstrap) == (address, bootstrap)
    assert target.file == (None if file is None else root / "infra" / f"{file}.yaml")


def test_what_is_no_cluster_is_refused_with_its_origin_or_with_those_there_are(root: Path) -> None:
    for text in ("gopher://x", "http://", "host", "h:port"):
        with pytest.raises(InvalidRequest, match=r"RAY_ADDRESS: .* is not an address"):
            find_target(None, {"RAY_ADDRESS": text})
    with pytest.raises(NotFound, match=r"no cluster named 'marin-us-centra'; did you mean 'marin-us-central2'\?"):
        find_target("marin-us-centra", {})
    with pytest.raises(NotFound, match=r"no cluster file 'infra/none\.yaml'.*marin-cluster, marin-us-central2$"):
        find_target("infra/none.yaml", {})
    (root / "infra" / "notes.yaml").write_text("a: 1\n")
    with pytest.raises(InvalidRequest, match=r"notes\.yaml is not a Ray cluster file"):
        find_target("notes", {})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read {}: "),
        ("a: [", "cannot read {}:1: "),
        ("- a", "{} is not a Ray cluster file"),
        ("provider: {type: gcp}", "{} is not a Ray cluster file"),
        ("cluster_name: a\nprovider: gcp", "{} is not a Ray cluster file"),
    ],
)
def test_a_file_that_describes_no_cluster_is_named(tmp_path: Path, content: str | None, said: str) -> None:
    file = tmp_path / "c.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(InvalidRequest, match=said.format(file)):
        read_cluster_file(file)
