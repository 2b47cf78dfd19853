"""Bundles: the same files give the same name, and only what the cluster lacks is sent."""

import io
import os
from pathlib import Path

import pytest

from iris.client.submission import bundle
from iris.client.submission.bundle import (
    Bundle,
    blob_digest,
    make_bundle,
    open_plain,
    upload_bundle,
    upload_messages,
)
from iris.cluster.types import Entrypoint
from iris.rpc.generated import iris_pb2 as pb
from rigging.errors import Conflict, InvalidRequest

MIB = 1 << 20
PART_BYTES = 4096


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(bundle, "PART_BYTES", PART_BYTES)
    root = tmp_path / "project"
    (root / "pkg").mkdir(parents=True)
    (root / "pkg/a.py").write_text("a")
    (root / "pkg/same.py").write_text("a")
    (root / "empty").write_text("")
    (root / "large.bin").write_bytes(os.urandom(PART_BYTES + 5))
    os.symlink("pkg/a.py", root / "link")
    return root


def packed(made: Bundle) -> dict[str, pb.BundleFile]:
    """The files of a bundle, by their paths."""
    return {file.path: file for file in pb.BundleManifest.FromString(made.manifest).files}


def test_the_manifest_describes_every_file(workspace):
    bundle = make_bundle(workspace)
    files = packed(bundle)
    assert list(files) == ["empty", "large.bin", "link", "pkg/a.py", "pkg/same.py"]
    assert [len(file.part_digests) for file in files.values()] == [0, 2, 0, 1, 1]
    assert files["link"].symlink_target == "pkg/a.py"
    large = b"".join(bundle.parts[digest].read() for digest in files["large.bin"].part_digests)
    assert large == (workspace / "large.bin").read_bytes()
    assert bundle.digest == blob_digest(bundle.manifest)


def test_empty_folders_go_along_where_nothing_else_is_at_their_place(workspace, tmp_path):
    without = make_bundle(workspace).digest
    (workspace / "logs").mkdir()
    (tmp_path / "lib/sub").mkdir(parents=True)
    (tmp_path / "file").write_text("")
    beside = {"lib": tmp_path / "lib", "here/logs/x": tmp_path / "file"}
    bundle = make_bundle(workspace, project_dir="here", beside=beside)
    assert list(pb.BundleManifest.FromString(bundle.manifest).directories) == ["lib/sub"]
    assert list(pb.BundleManifest.FromString(make_bundle(workspace).manifest).directories) == ["logs"]
    (workspace / "logs").rmdir()
    assert make_bundle(workspace).digest == without


def test_the_digest_depends_on_content_only(workspace, tmp_path):
    first = make_bundle(workspace).digest
    os.utime(workspace / "pkg/a.py", (1, 1))
    moved = workspace.rename(tmp_path / "elsewhere")
    assert make_bundle(moved).digest == first
    (moved / "pkg/a.py").write_text("b")
    assert make_bundle(moved).digest != first


def test_only_what_is_missing_is_sent_and_the_manifest_last(cluster, workspace):
    bundle = make_bundle(workspace)
    assert upload_bundle(cluster, bundle) == len(bundle.parts) + 1
    assert set(cluster.blobs) == {bundle.digest, *bundle.parts}
    assert cluster.uploaded[-1].chunks[-1].digest == bundle.digest
    messages = len(cluster.uploaded)
    assert upload_bundle(cluster, bundle) == 0
    assert len(cluster.uploaded) == messages, "what is there is not sent"
    (workspace / "pkg/a.py").write_text("changed")
    assert upload_bundle(cluster, make_bundle(workspace)) == 2


@pytest.mark.parametrize("change", [lambda path: path.write_text("z"), Path.unlink], ids=["written", "removed"])
def test_a_file_that_changes_before_it_is_sent_is_an_error_not_a_wrong_blob(cluster, workspace, change):
    bundle = make_bundle(workspace)
    for name in ("a.py", "same.py"):
        change(workspace / "pkg" / name)
    with pytest.raises(Conflict, match=r"a\.py changed"):
        upload_bundle(cluster, bundle)
    assert bundle.digest not in cluster.blobs


class FallsShort(io.BytesIO):
    """A file that somebody cuts off after it was listed."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(size)[:1]


def test_a_file_that_is_cut_off_while_it_is_packed_is_an_error_unless_it_is_copied(workspace, tmp_path, monkeypatch):
    monkeypatch.setattr(bundle, "open_plain", lambda path: FallsShort(path.read_bytes()[:1]))
    (workspace / "pkg/a.py").write_text("abc")
    with pytest.raises(Conflict, match=r"changed while the workspace was packed; submit again"):
        make_bundle(workspace)
    (workspace / "large.bin").write_text("ab")
    sizes = {path: file.size_bytes for path, file in packed(make_bundle(workspace, snapshot=tmp_path)).items()}
    assert (sizes["pkg/a.py"], sizes["large.bin"]) == (1, 1), "as long as what was read"


GONE, CLOSED, BROKEN = FileNotFoundError(2, "No such file"), PermissionError(13, "denied"), OSError(5, "I/O error")


@pytest.mark.parametrize(
    ("error", "copied", "refusal", "warnings"),
    [
        (GONE, False, (Conflict, "empty changed while the workspace was packed"), ()),
        (GONE, True, None, ()),
        (CLOSED, False, None, ("empty cannot be read: denied; skipping it",)),
        (BROKEN, False, (InvalidRequest, "empty of the workspace cannot be read: I/O error"), ()),
    ],
    ids=["vanishes", "vanishes from a copy", "may not be read", "broken disk"],
)
def test_what_cannot_be_read_is_left_out_or_told(workspace, tmp_path, monkeypatch, error, copied, refusal, warnings):
    def read(path):
        if path.name == "empty":
            raise error
        return open_plain(path)

    monkeypatch.setattr(bundle, "open_plain", read)
    if refusal is not None:
        with pytest.raises(refusal[0], match=refusal[1]):
            make_bundle(workspace)
        return
    made = make_bundle(workspace, snapshot=tmp_path if copied else None)
    assert list(packed(made)) == ["large.bin", "link", "pkg/a.py", "pkg/same.py"]
    assert (made.warnings, made.file_count) == (warnings, 4)


def test_a_copy_can_be_sent_whatever_happens_to_the_files(cluster, workspace, tmp_path):
    snapshot = tmp_path / "copy"
    snapshot.mkdir()
    bundle = make_bundle(workspace, snapshot=snapshot)
    for path in (workspace / "pkg").iterdir():
        path.unlink()
    assert upload_bundle(cluster, bundle) == len(bundle.parts) + 1
    assert bundle.digest in cluster.blobs


def test_what_the_cluster_has_lost_since_is_sent_again(cluster, workspace):
    client = cluster.client(workspace, same_machine=True)
    client.submit(Entrypoint.from_command("true"), "first")
    cluster.blobs.clear()
    cluster.answers = [[InvalidRequest("the bundle is not here")]]
    client.submit(Entrypoint.from_command("true"), "second")
    assert cluster.spec.bundle_digest in cluster.blobs


def test_what_was_put_in_the_place_of_a_file_since_is_not_followed_nor_waited_for(workspace):
    """A link could lead to any file of the user, which nobody chose to send."""
    os.mkfifo(workspace / "fifo")
    before = os.listdir("/proc/self/fd")
    for place in ("link", "empty/below", "pkg", "fifo"):
        with pytest.raises(FileNotFoundError):
            open_plain(workspace / place)
    assert os.listdir("/proc/self/fd") == before, "nothing stays open"
    with open_plain(workspace / "pkg/a.py") as file:
        assert file.read() == b"a"


@pytest.mark.parametrize("mode", [0o644, 0o755])
def test_a_single_file_beside_the_workspace_keeps_its_size_and_whether_it_runs(workspace, tmp_path, mode):
    (tmp_path / "tool").write_text("#!/bin/sh")
    (tmp_path / "tool").chmod(mode)
    made = make_bundle(workspace, project_dir="here", beside={"bin/tool": tmp_path / "tool"})
    files = packed(made)
    assert (files["bin/tool"].size_bytes, files["bin/tool"].executable) == (9, mode == 0o755)
    assert "here/pkg/a.py" in files


def test_messages_stay_small_and_many_small_blobs_share_one():
    blobs = [(f"d{i}", b"x" * 1000) for i in range(500)] + [("big", b"y" * (2 * MIB + 1)), ("none", b"")]
    messages = list(upload_messages(blobs))
    assert all(sum(len(chunk.data) for chunk in message.chunks) <= MIB for message in messages)
    assert len(messages) <= 5
    chunks = [chunk for message in messages for chunk in message.chunks]
    assert sum(chunk.last for chunk in chunks) == len(blobs)
    assert [chunk.offset for chunk in chunks if chunk.digest == "big"] == [0, MIB, 2 * MIB]
    halves = list(upload_messages([(name, bytes(MIB // 2)) for name in "abcd"]))
    assert [[chunk.digest for chunk in message.chunks] for message in halves] == [["a", "b"], ["c", "d"]]


def test_a_bundle_too_large_is_refused_in_the_words_of_iris(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(bytes(2**20 + 1))
    monkeypatch.setenv("IRIS_MAX_BUNDLE_MB", "1")
    with pytest.raises(InvalidRequest, match=r"--no-workspace\)\. To allow more, set IRIS_MAX_BUNDLE_MB"):
        make_bundle(tmp_path)
