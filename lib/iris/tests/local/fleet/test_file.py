"""A cluster file that is to run here: what is kept of it, and what is refused before anything is changed."""

from pathlib import Path

import pytest
import yaml

from iris.local.controller import local_config
from iris.local.fleet.file import has_slices, ignored_rules, import_file, prepare_run
from iris.local.settings import LocalSettings, read_settings
from iris.local.state import LocalPaths, host_worker_id, is_local_worker, local_root, named_paths
from rigging.errors import InvalidRequest

GROUP = "scale_groups: [{name: a, cpu: 1, memory: 1GB, disk: 1GB, min_slices: 2, max_slices: 4}]\n"
REST = (
    "storage: {remote_state_dir: gs://real/iris, durability: remote}\ncontroller: {port: 7077, state_dir: /srv/iris}\n"
)


@pytest.fixture
def paths(tmp_path: Path) -> LocalPaths:
    return LocalPaths(tmp_path / "clusters" / "c")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "c.yaml"


def test_the_real_clusters_state_and_port_are_left_alone(paths: LocalPaths, file: Path, tmp_path: Path) -> None:
    file.write_text(GROUP + REST + "user_budgets: {ann: {max_weight: 5}}\n")
    plan = prepare_run(paths, file, 3)
    assert plan.first == {"a": 2}
    assert read_settings(paths) == LocalSettings(str(file), "", "", 3)
    config = local_config(paths)
    assert (config.state_dir, config.port, config.remote_state_dir) == (paths.root, 0, "")
    assert [group.name for group in config.scale_groups] == ["a"]
    assert [budget.user for budget in config.user_budgets] == ["ann"]
    file.write_text(GROUP + REST)
    prepare_run(paths, file, 3, str(tmp_path / "remote"), "remote")
    config = local_config(paths)
    assert (config.remote_state_dir, config.durability.value) == (str(tmp_path / "remote"), "remote")


@pytest.mark.parametrize(
    ("text", "max_hosts", "durability", "why"),
    [
        (GROUP + "controller: {address: 'h:7'}", 3, "", "controller.address is 'h:7', so its name means the cluster"),
        (GROUP, 3, "remote", "there is no --remote-state-dir"),
        ("scale_groups: []", 3, "", "it has no scale_groups"),
        (GROUP.replace("max_slices: 4", "max_slices: 4, hosts_per_slice: 9"), 3, "",
            "a: a slice has 9 hosts; at most 3"),
        (GROUP.replace("cpu: 1", "cpu: 0"), 3, "", "c.yaml:1: scale_groups[0].cpu is 0"),
    ],
)  # fmt: skip
def test_what_cannot_run_is_refused_and_leaves_nothing(
    paths: LocalPaths, file: Path, text: str, max_hosts: int, durability: str, why: str
) -> None:
    file.write_text(text)
    with pytest.raises(InvalidRequest) as refused:
        prepare_run(paths, file, max_hosts, durability=durability)
    assert why in str(refused.value)
    assert not paths.root.exists()


def test_files_with_slices_are_known_and_one_that_is_ours_is_imported_as_it_is(file: Path) -> None:
    file.write_text(REST)
    assert not has_slices(file)
    file.write_text(GROUP)
    assert has_slices(file)
    file.write_text(GROUP + REST)
    imported = import_file(file)
    assert imported.left_out == ()
    assert not ignored_rules(file)
    file.write_text(GROUP + "defaults: {autoscaler: {max_hosts: 3}}\n")
    assert ignored_rules(file)
    assert yaml.safe_load(imported.text) == yaml.safe_load(GROUP + REST)
    file.write_text(GROUP.replace("cpu: 1", "cpu: lots"))
    with pytest.raises(InvalidRequest, match=r"cpu is 'lots'"):
        import_file(file)


def test_a_run_lies_beside_the_embedded_cluster_and_its_workers_know_where() -> None:
    environ = {"IRIS_STATE_DIR": "/state/iris"}
    paths = named_paths(environ, "marin")
    assert paths.root == Path("/state/iris-clusters/marin")
    worker_id = host_worker_id("v4-0-w1")
    assert is_local_worker(worker_id)
    assert local_root(worker_id, str(paths.host("v4-0-w1").worker_dir)) == paths.root
    assert local_root("local", "/state/iris/worker") == Path("/state/iris")
    assert local_root("w7", "/srv/worker") is None
    assert local_root("local", "") is None
    for name in ("", "..", "a/b", "-x", "a b", "x" * 101):
        with pytest.raises(InvalidRequest, match="cluster name"):
            named_paths(environ, name)
