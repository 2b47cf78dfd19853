"""What a startup script says, and what it installs."""

import shlex
import subprocess
import zipfile
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest

from iris.autoscale.boot.release import CONSTRAINTS, Release, own_release, publish
from iris.autoscale.boot.script import StoredRelease, check_reachable, worker_script
from iris.autoscale.port import SliceOrder
from iris.autoscale.rules import Platform
from iris.domain.resources import Device, Resources
from iris.domain.scale_groups import CapacityType, GcpTemplate, ScaleGroup
from rigging.errors import InvalidRequest

STORED = StoredRelease("0.1.0-abc", "gs://bucket/a b/releases/0.1.0-abc", "3.12", ("iris.whl",))
GPUS = ScaleGroup(
    "gpu's",
    Resources(7500, 2**34, 0, Device("gpu", "H100", 8)),
    zone="us-east1-b",
    region="us-east1",
    capacity_type=CapacityType.SPOT,
    attributes=(("note", "a'b $c"),),
    template=GcpTemplate(machine_type="a3-highgpu-8g"),
    environment=(("ONE", "group's"),),
)
PLATFORM = Platform(environment=(("ONE", "all"), ("TWO", '$x `y` "z" \\')), task_environment=(("A", "é"),))


def test_a_script_says_what_its_slice_is() -> None:
    script = worker_script(SliceOrder("s-1", GPUS, "t-o-k-e-n"), STORED, "10.0.0.2:7077", PLATFORM, insecure=True)
    lines = {name: value for name, _, value in (line.partition("=") for line in script.splitlines())}
    options = shlex.split(lines["options"].strip("()"))
    given = list(zip(options[::2], options[1::2], strict=False))
    assert given[:4] == [
        ("--controller", "10.0.0.2:7077"), ("--platform", "gce"), ("--slice", "s-1"), ("--gpu", "H100:8"),
    ]  # fmt: skip
    assert given[4:6] == [("--cpu", "7.5"), ("--memory", "17179869184")]
    attributes = dict(value.split("=", 1) for option, value in given if option == "--attributes")
    assert attributes == {
        "region": "us-east1", "zone": "us-east1-b", "preemptible": "false", "device-type": "gpu",
        "device-variant": "H100", "note": "a'b $c", "scale-group": "gpu's",
    }  # fmt: skip
    assert options[-1] == "--insecure"
    assert lines["folder"] == "a%20b%2Freleases%2F0.1.0-abc"
    assert lines["join_token"] == "t-o-k-e-n"
    assert script.count("t-o-k-e-n") == 1
    assert subprocess.run(["bash", "-n"], input=script.encode(), check=True).returncode == 0


def test_variables_reach_the_shell_as_they_are(tmp_path: Path) -> None:
    script = worker_script(SliceOrder("s-1", GPUS), STORED, "h:1", PLATFORM)
    head = script.partition("# Installs")[0]
    shown = 'printf "%s" "$environment" >file; set -a; . ./file; printf "%s\\0" "$ONE" "$TWO" "$IRIS_TASK_VARIABLES"'
    done = subprocess.run(["bash", "-c", head + shown], cwd=tmp_path, capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:3] == ["group's", '$x `y` "z" \\', '{"A": "\\u00e9"}']


@pytest.mark.parametrize(
    ("value", "words"),
    [("a\nb", "the variable BAD has a line break"), ("x" * 2**18, "Google takes 262,144: give fewer or shorter")],
)
def test_a_script_that_cannot_be_is_refused(value: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        worker_script(SliceOrder("s-1", GPUS), STORED, "h:1", Platform(environment=(("BAD", value),)))


@pytest.mark.parametrize("url", ["", "/var/lib/state", "s3://bucket/state"])
def test_machines_must_reach_the_release(url: str) -> None:
    check_reachable("gs://bucket/state")
    with pytest.raises(InvalidRequest, match="give a bucket that they can read: gs://BUCKET/FOLDER"):
        check_reachable(url)


def test_a_release_is_this_installation_and_is_stored_once(tmp_path: Path) -> None:
    release = own_release()
    assert own_release().name == release.name
    iris = next(name for name in release.wheels if name.startswith("marin_iris-"))
    with zipfile.ZipFile(BytesIO(release.files[iris])) as wheel:
        assert wheel.testzip() is None
        names = wheel.namelist()
        record = wheel.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert {"iris/autoscale/boot/install.sh", "iris/py.typed"} <= set(names)
    assert {line.partition(",")[0] for line in record.splitlines()} == set(names)
    constraints = release.files[CONSTRAINTS].decode().splitlines()
    assert any(line.startswith("grpcio==") for line in constraints)
    assert not any(line.startswith(("marin", "pytest")) for line in constraints)
    stored = publish(replace(release, uv=None), str(tmp_path))
    assert stored == StoredRelease(release.name, f"{tmp_path}/releases/{release.name}", release.python, release.wheels)
    folder = tmp_path / "releases" / release.name
    assert {path.name for path in folder.iterdir()} == {*release.files, "complete"}
    (folder / CONSTRAINTS).unlink()
    publish(release, str(tmp_path))
    assert not (folder / CONSTRAINTS).exists(), "what is complete is not written again"


def test_the_current_release_and_the_last_are_kept(tmp_path: Path) -> None:
    for name in "abca":
        publish(Release(name, "3.12", {CONSTRAINTS: b""}), str(tmp_path))
    assert {path.name for path in (tmp_path / "releases").iterdir() if path.is_dir()} == {"a", "c"}
