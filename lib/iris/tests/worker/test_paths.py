"""Where a worker keeps what: names that never meet, directories of its owner only, and what a new worker keeps."""

import os
from pathlib import Path

import pytest

from iris.worker.paths import WorkPaths, safe_name, short_name


def test_ids_and_file_names_are_one_to_one_also_long_and_short_ones() -> None:
    ids = ["/u/a/0:0", "/u/a/0:1", "/u/a/00:1", "/u/a", "/u/a/b/0:0", "/u/a~b/0:0", "/u/ab/0:0", "/ua/b/0:0"]
    names = [safe_name(name) for name in ids if "~" not in name]
    assert len(set(names)) == len(names)
    assert not any("/" in name for name in names)
    assert safe_name("/u/a/0:12") == "u~a~0~~12"
    assert safe_name("x" * 180) == "x" * 180
    first, second = safe_name("x" * 181), safe_name("x" * 182)
    assert first != second
    for name in (first, second, safe_name("/".join("ab" * 400))):
        assert len(name) < 255
        assert name[180:183] == "~~~"
    assert first.startswith("x" * 180)
    names = {short_name(f"/u/job/{number}:0") for number in range(1000)}
    assert len(names) == 1000
    assert {len(name) for name in names} == {10}


@pytest.mark.skipif(os.geteuid() != 0, reason="NOT TESTED: directories of other users need root")
def test_the_part_of_a_uid_is_closed_to_others_and_its_names_are_roots(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path / "work", 70_001)
    paths.make()
    paths.errors.chmod(0o000)
    paths.make()
    modes = {
        path: (path.stat().st_uid, path.stat().st_gid, path.stat().st_mode & 0o777) for path in tmp_path.rglob("*")
    }
    for part in ("users", "caches"):
        assert modes[paths.root / part] == (0, 0, 0o711)
        assert modes[paths.root / part / "70001"] == (0, 70_001, 0o710)
    assert {path for path, (uid, _, _) in modes.items() if uid == 70_001} == {paths.errors, paths.home}
    assert modes[paths.errors] == modes[paths.home] == (70_001, 70_001, 0o700)
    assert modes[paths.trash][2] == modes[paths.logs][2] == 0o700
    assert modes[paths.bundles] == modes[paths.slots] == (0, 0, 0o755)


def test_directories_are_made_for_their_owner_only_and_mended(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path / "deep" / "work")
    paths.make()
    made = sorted(path for path in paths.root.iterdir())
    assert {paths.logs, paths.tokens, paths.errors, paths.trash} <= set(made)
    assert {path.stat().st_mode & 0o777 for path in (*made, paths.root)} == {0o700}
    paths.logs.chmod(0o100)
    paths.scratch.rmdir()
    (paths.logs / "kept").write_text("x")
    paths.make()
    assert sorted(paths.root.iterdir()) == made
    assert paths.logs.stat().st_mode & 0o777 == 0o700
    assert (paths.logs / "kept").read_text() == "x"


def test_what_former_attempts_left_goes_and_what_goes_on_stays(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path)
    paths.make()
    going_on = ("/u/a/0:1", "/u/a")
    for name in (*going_on, "/u/a/0:0", "/u/b"):
        Path(paths.log(name)).write_text("x")
        Path(paths.error(name)).mkdir()
        (Path(paths.error(name)) / "file").write_text("x")
        Path(paths.token(name)).symlink_to(tmp_path / "bundles")
    (tmp_path / "bundles" / "kept").write_text("x")
    paths.clear_attempts([going_on])
    names = {safe_name(name) for name in going_on}
    for directory in (paths.logs, paths.errors, paths.tokens):
        assert {path.name for path in directory.iterdir()} == names
    assert (tmp_path / "bundles" / "kept").exists(), "a link is removed, not what it points to"


def test_what_belongs_to_one_attempt_is_its_own_and_a_bundle_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    paths = WorkPaths(tmp_path)
    for name in ("layer", "log", "error", "token"):
        of = getattr(paths, name)
        assert of("/u/a/0:0") != of("/u/a/1:0")
        assert of("/u/a/0:0").startswith(f"{tmp_path}/")
    for inner in ("", "src", "src/deep"):
        assert paths.bundle_of(paths.bundles / "abc" / inner) == paths.bundles / "abc"
