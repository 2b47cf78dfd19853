import io
import json
import os
import shlex
import zipfile
from pathlib import Path

import pytest

from marin.run.submit.options import RunOptions
from marin.run.submit.run_job import job_env, prepare
from marin.run.submit.submission import EntrypointResources, Submission
from marin.run.submit.working_directory import list_working_directory, pack
from rigging.errors import InvalidRequest
from rigging.project.needs import ProjectNeeds


def packed(root: Path) -> dict[str, tuple[bytes, int]]:
    package = pack(root, list_working_directory(root, {}))
    with zipfile.ZipFile(io.BytesIO(package.data)) as archive:
        return {info.filename: (archive.read(info), (info.external_attr >> 16) & 0o777) for info in archive.infolist()}


def test_links_are_packed_as_what_they_point_to_and_modes_are_kept(project: Path) -> None:
    (project / "run.sh").write_text("#!/bin/sh\n")
    (project / "run.sh").chmod(0o755)
    (project / "data/deep").mkdir(parents=True)
    (project / "data/deep/x.txt").write_text("x")
    links = {"again.sh": "run.sh", "studies": "experiments", "linked": "data", "data/itself": "."}
    for name, target in links.items():
        (project / name).symlink_to(target)
    found = packed(project)
    assert found["again.sh"] == found["run.sh"] == (b"#!/bin/sh\n", 0o755)
    assert found["studies/hello_world.py"] == (b"print('hello')\n", 0o644)
    assert found["linked/deep/x.txt"] == found["data/deep/x.txt"] == (b"x", 0o644)
    # A link within a folder that is linked to may lead back to where it is, without an end.
    assert [name for name in found if name.startswith("linked/")] == ["linked/deep/x.txt"]
    assert "noise.log" not in found


def test_links_with_nothing_to_pack_in_their_place_are_named(project: Path) -> None:
    links = {
        "dangling": "nowhere",
        "once.py": "twice.py",
        "twice.py": "/etc/hostname",
        "ignored": "noise.log",
        "all": ".",
    }
    for name, target in links.items():
        (project / name).symlink_to(target)
    (project / "experiments" / "up").symlink_to("../dangling")
    package = pack(project, list_working_directory(project, {}))
    named = {*links, "experiments/up"}
    assert {name for name in named if any(f"symlink {name} " in text for text in package.warnings)} == named
    assert len(package.warnings) == len(named)


def test_the_home_directory_does_not_go_along(project: Path) -> None:
    with pytest.raises(InvalidRequest, match="your home directory"):
        list_working_directory(Path(os.environ["HOME"]), os.environ)


@pytest.mark.parametrize(
    ("given", "paths", "shell", "sent"),
    [
        (
            {"MARIN_X": "2"},
            (),
            {"MARIN_PREFIX": "gs://b/p", "MARIN_X": "1", "HF_TOKEN": "t", "HOME": "/h", "WANDB_MODE": "offline"},
            {"MARIN_PREFIX": "gs://b/p", "MARIN_X": "2", "HF_TOKEN": "t", "WANDB_MODE": "offline"},
        ),
        ({"MARIN_PREFIX": "/mine"}, (), {"MARIN_PREFIX": "/mine"}, {"MARIN_PREFIX": "/mine"}),
        ({}, ("lib/a/src", "b"), {"PYTHONPATH": "/mine"}, {"PYTHONPATH": "lib/a/src:b"}),
        ({"PYTHONPATH": "x"}, ("lib/a/src", "b"), {}, {"PYTHONPATH": "x:lib/a/src:b"}),
    ],
)
def test_variables(given: dict[str, str], paths: tuple[str, ...], shell: dict[str, str], sent: dict[str, str]) -> None:
    assert job_env(given, ProjectNeeds(import_paths=paths), shell) == (sent, ())


def test_a_prefix_on_this_machine_is_for_this_machine_unless_it_is_named() -> None:
    env, (note,) = job_env({}, ProjectNeeds(), {"MARIN_PREFIX": "/scratch/me"})
    assert env == {}
    assert "/scratch/me is a folder of this machine" in note


def test_what_ray_refuses_is_left_out_and_unreadable_is_named(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("back\\slash", "gone", "kept"):
        (project / name).write_text("12345")
    listing = list_working_directory(project, {})
    (project / "gone").unlink()
    package = pack(project, listing)
    assert any("'back\\\\slash' has a backslash in its name" in warning for warning in package.warnings)
    assert package.file_count == len(listing.files) - 2
    assert package.size_bytes == listing.size_bytes - 10

    def closed(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", closed)
    with pytest.raises(InvalidRequest, match="of the working directory cannot be read: Permission denied"):
        pack(project, listing)


def test_the_same_files_have_the_same_name(project: Path) -> None:
    names = []
    for content in ("a", "b", "a"):
        (project / "x.py").write_text(content)
        names.append(pack(project, list_working_directory(project, {})).name)
    assert names[0] == names[2] != names[1]
    assert names[0].startswith("_ray_pkg_")
    assert names[0].endswith(".zip")


def test_a_folder_that_is_too_large_is_refused_with_its_largest_files(project: Path) -> None:
    for name, size in (("big.bin", 3 << 20), ("small.bin", 1 << 20)):
        (project / name).write_bytes(bytes(size))
    with pytest.raises(InvalidRequest) as refused:
        list_working_directory(project, {"MARIN_RAY_MAX_WORKING_DIR_MB": "2"})
    text = str(refused.value)
    assert text.index("big.bin") < text.index("small.bin")
    assert "--working-dir DIR" in text
    assert "MARIN_RAY_MAX_WORKING_DIR_MB" in text


def test_the_request() -> None:
    submission = Submission(
        "raysubmit_x", ("python", "a b.py"), {"K": "v"}, ("six==1.16.0",), "gcs://p.zip",
        EntrypointResources(2, 0.5, 1 << 30, {"TPU": 4, "TPU-v4-8-head": 1}),
    )  # fmt: skip
    assert submission.body() == {
        "entrypoint": "python 'a b.py'",
        "submission_id": "raysubmit_x",
        # Ray does not list these: without the note, a job could not be submitted again as it was.
        "metadata": {
            "marin_entrypoint": '{"entrypoint_num_cpus": 2, "entrypoint_num_gpus": 0.5, '
            '"entrypoint_memory": 1073741824, "entrypoint_resources": {"TPU": 4, "TPU-v4-8-head": 1}}'
        },
        "runtime_env": {
            "working_dir": "gcs://p.zip",
            "env_vars": {"K": "v"},
            "pip": {"packages": ["six==1.16.0"], "pip_check": False},
            "config": {"setup_timeout_seconds": 1800},
        },
        "entrypoint_num_cpus": 2,
        "entrypoint_num_gpus": 0.5,
        "entrypoint_memory": 1 << 30,
        "entrypoint_resources": {"TPU": 4, "TPU-v4-8-head": 1},
    }
    words = shlex.split(submission.ray_command("http://h:1", ".", wait=False))
    assert words[:7] == ["ray", "job", "submit", "--address", "http://h:1", "--working-dir", "."]
    assert "working_dir" not in json.loads(words[words.index("--runtime-env-json") + 1])
    assert words[-4:] == ["--no-wait", "--", "python", "a b.py"]
    assert words[words.index("--entrypoint-num-gpus") + 1] == "0.5"


def test_nothing_is_sent_that_was_not_asked_for() -> None:
    submission = Submission("raysubmit_x", ("true",))
    assert submission.body() == {
        "entrypoint": "true", "submission_id": "raysubmit_x", "metadata": {}, "runtime_env": {},
    }  # fmt: skip
    assert submission.ray_command("http://h:1", ".", wait=True) == (
        "ray job submit --address http://h:1 --working-dir . -- true"
    )


def test_secrets_are_sent_but_not_shown() -> None:
    env = {"HF_TOKEN": "hf_Secret123", "NOTE": "see https://me:pass@example.org/", "PLAIN": "v"}
    pip = ("x @ git+https://me:pass@example.org/x.git",)
    submission = Submission("raysubmit_x", ("tool", "--api-key", "k3y-of-mine"), env, pip)
    assert submission.body()["runtime_env"]["env_vars"] == env
    shown = json.dumps(submission.shown_body()) + submission.ray_command("http://me:pass@h:1", ".", wait=True)
    for secret in ("hf_Secret123", "me:pass", "k3y-of-mine"):
        assert secret not in shown
    assert '"PLAIN": "v"' in shown


def test_the_clusters_own_ray_is_kept(project: Path) -> None:
    options = RunOptions(("true",), pip_deps=("six", "ray==2.0", "six"), extras=("tokenize_train",))
    prepared = prepare(options, {})
    assert prepared.submission.pip == ("fsspec>=2025.3", "tokenizers>=0.20", "transformers>=4.50", "six")
    without = prepare(RunOptions(("true",), pip_deps=("six",), project_dependencies=False), {})
    assert without.submission.pip == ("six",)
