"""A local copy on its way in: claimed by one copier, gone on with by the next, published once."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from rigging.filesystem.mirror.part import claim_part, part_path


def test_a_part_is_claimed_by_one_and_goes_on_from_what_is_there(tmp_path: Path):
    final = str(tmp_path / "x")
    first = claim_part(final, "v1", 60)
    assert first is not None
    first.append(b"123")
    claimed: list[Any] = []
    waiting = threading.Thread(target=lambda: claimed.append(claim_part(final, "v1", 60)))
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive(), "the second must wait while the first is at work"
    first.close()
    waiting.join(5)
    second = claimed[0]
    assert second.size == 3
    second.append(b"45")
    assert second.publish(final)
    second.close()
    assert Path(final).read_bytes() == b"12345"
    assert os.listdir(tmp_path) == ["x"]
    assert claim_part(final, "v1", 60) is None


def test_a_copier_that_stands_still_is_passed_by(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    final = str(tmp_path / "x")
    still = claim_part(final, "v", 60)
    assert still is not None
    other = claim_part(final, "v", 0.01)
    assert other is not None
    assert other.path != still.path
    assert "no progress of its copier" in caplog.text
    other.append(b"x")
    assert other.publish(final)
    assert not still.publish(final), "what is published is not replaced"
    other.close()
    still.close()
    assert os.listdir(tmp_path) == ["x"]


def test_a_part_that_was_published_is_never_written_again(tmp_path: Path):
    final = tmp_path / "x"
    final.write_bytes(b"published")
    part = part_path(str(final), "v")
    os.link(final, part)
    moved = tmp_path / "archive"
    os.rename(final, moved)
    claimed = claim_part(str(final), "v", 60)
    assert claimed is not None
    assert claimed.size == 0
    claimed.append(b"new")
    claimed.close()
    assert moved.read_bytes() == b"published"
