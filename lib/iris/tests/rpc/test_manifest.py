import pytest

from iris.rpc import manifest as manifest_module
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.manifest import BundleEntry, check_entries, check_sizes, parse_manifest
from rigging.errors import InvalidRequest


def file(path: str, *parts: str, size: int = 0, target: str = "") -> BundleEntry:
    return BundleEntry(path, False, target, parts, size)


def empty(path: str) -> BundleEntry:
    return BundleEntry(path, False, "", (), is_directory=True)


def refusal(*entries: BundleEntry) -> str:
    """Why a bundle of these is refused; empty when it is not."""
    try:
        check_entries(entries)
    except InvalidRequest as error:
        return str(error)
    return ""


def test_a_long_path_is_shown_by_its_beginning_and_others_whole() -> None:
    for path in ("/" + "x" * 79, "/" + "x" * 80):
        whole = len(path) == 80
        assert refusal(file(path)) == f"path {path[:80]!r}{'' if whole else '…'} is not a plain relative path"


@pytest.mark.parametrize(
    ("path", "target", "reason"),
    [
        ("../outside", "", "not a plain relative path"),
        ("a/../../b", "", "not a plain relative path"),
        ("/etc/passwd", "", "not a plain relative path"),
        ("a//b", "", "not a plain relative path"),
        ("", "", "not a plain relative path"),
        ("a\0b", "", "not a plain relative path"),
        ("link", "/etc", "points outside"),
        ("a/link", "../../etc", "points outside"),
        ("link", "x" * 2049, "the target of link 'link' is longer than 2048 bytes"),
        ("x" * 300, "", "has a name of 300 bytes; at most 255"),
        ("ä" * 128, "", "has a name of 256 bytes; at most 255"),
        ("/".join(["x" * 200] * 11), "", "has 2210 bytes; at most 2048"),
    ],
)
def test_a_path_that_cannot_be_written_or_leaves_the_bundle_is_refused(path: str, target: str, reason: str) -> None:
    assert reason in refusal(file(path, target=target))


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ([file("a"), file("a")], "path 'a' occurs twice"),
        ([file("link", target="elsewhere"), file("link/file")],
            "path 'link/file' goes through a symbolic link: 'link'"),
        ([file("a/b/c/d"), file("a/b")], "path 'a/b/c/d' is below a file: 'a/b'"),
        ([file("a/b"), empty("a")], "path 'a/b' is in a directory that should be empty: 'a'"),
        ([empty("a/b"), file("a")], "path 'a/b' is below a file: 'a'"),
        ([empty("a"), empty("a")], "path 'a' occurs twice"),
        ([empty("../a")], "path '../a' is not a plain relative path"),
        ([file("a", "../../x")], "file 'a': '../../x' is not a digest"),
        ([file("a", size=-1)], "file 'a' has a size of -1 bytes"),
        ([file("a", "ab" * 32, target="b")], "'a' is a symbolic link and has content, too"),
        ([file("a", size=2**33), file("b", size=2**33 + 1)], "its files have 17179869185 bytes; at most 17179869184"),
    ],
)  # fmt: skip
def test_entries_that_contradict_each_other_are_refused(entries: list[BundleEntry], reason: str) -> None:
    assert reason in refusal(*entries)


def test_links_that_stay_inside_long_names_and_as_much_as_is_allowed_are_not_refused() -> None:
    assert refusal(file("a", size=2**33), file("b", size=2**33)) == ""
    assert refusal(file("a/b/link", target="../../c"), file("ä" * 127), file("/".join(["x" * 255] * 8))) == ""


def test_a_size_that_is_not_that_of_the_parts_is_refused() -> None:
    part = "ab" * 32
    check_sizes([file("a", part, part, size=6), file("empty")], {part: 3})
    with pytest.raises(InvalidRequest, match="file 'a' should have 5 bytes, but its parts have 6"):
        check_sizes([file("a", part, part, size=5)], {part: 3})


def test_what_is_no_manifest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for data, reason in (
        (b"\xff\xff\xff", "not a bundle manifest"),
        (b"", "has format 0; this release reads format 1"),
        (pb.BundleManifest(format=2).SerializeToString(), "has format 2"),
    ):
        with pytest.raises(InvalidRequest, match=reason):
            parse_manifest(data)
    monkeypatch.setattr(manifest_module, "MAX_MANIFEST_BYTES", 50)
    monkeypatch.setattr(manifest_module, "MAX_BUNDLE_FILES", 2)
    with pytest.raises(InvalidRequest, match="51 bytes; at most 50"):
        parse_manifest(b"x" * 51)
    three = pb.BundleManifest(format=1, files=[pb.BundleFile(path=name) for name in "abc"])
    with pytest.raises(InvalidRequest, match="3 files; at most 2"):
        parse_manifest(three.SerializeToString())
