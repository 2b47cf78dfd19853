"""Upload checkpoints of a training run to Hugging Face. `huggingface_hub` is imported on use.

python -m marin.utilities.upload_gcs_to_hf --repo-id ORG/MODEL --directories gs://bucket/checkpoints/run/hf/ [--dry-run]
"""

from __future__ import annotations

import argparse
import logging
import re
import tempfile
from dataclasses import dataclass, field
from typing import Any

from rigging.errors import InvalidRequest
from rigging.filesystem import url_to_fs
from rigging.log_setup import configure_logging

logger = logging.getLogger(__name__)

_STEP = re.compile(r"step-(\d+)")


@dataclass
class UploadConfig:
    """A repository, and the checkpoint directories to upload.

    Attributes:
        hf_repo_id: The repository, `org/model`.
        gcs_directories: Directories of a run, each with directories `step-{n}`, on any storage.
        dry_run: Only log what would be uploaded.
        wait_for_completion: Ignored: a call returns when the upload is complete.
    """

    hf_repo_id: str
    gcs_directories: list[str] = field(default_factory=list)
    dry_run: bool = False
    wait_for_completion: bool = True


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint: its location, its step, and the name of its run, which becomes a tag."""

    path: str
    step: int
    version: str


def list_checkpoints(directory: str) -> list[Checkpoint]:
    """Return the checkpoints in a run's directory (`.../{run}/hf/`), by step."""
    fs, path = url_to_fs(directory.rstrip("/"))
    scheme = directory.partition("://")[0] + "://" if "://" in directory else ""
    version = (path.rstrip("/").split("/")[-2:-1] or [""])[0]
    found = []
    for name in fs.ls(path, detail=False):
        step = _STEP.fullmatch(str(name).rstrip("/").rpartition("/")[2])
        if step is not None:
            found.append(Checkpoint(f"{scheme}{str(name).rstrip('/')}", int(step[1]), version))
    return sorted(found, key=lambda checkpoint: checkpoint.step)


def upload_gcs_to_hf(cfg: UploadConfig) -> None:
    """Upload the checkpoints that the repository lacks, oldest first, each tagged with its run's name.

    Raises:
        InvalidRequest: No directory is given.
    """
    if not cfg.gcs_directories:
        raise InvalidRequest("UploadConfig.gcs_directories is empty: name the directories to send")
    every = [checkpoint for directory in cfg.gcs_directories for checkpoint in list_checkpoints(directory)]
    every.sort(key=lambda checkpoint: checkpoint.step)
    if not every:
        logger.warning("no step-{n} directory in %s", ", ".join(cfg.gcs_directories))
    if cfg.dry_run:
        for checkpoint in every:
            logger.info("would send %s to %s, as %s", checkpoint.path, cfg.hf_repo_id, checkpoint.version)
        return
    if every:
        _send(every, cfg.hf_repo_id)


def _send(checkpoints: list[Checkpoint], repo_id: str) -> None:
    import huggingface_hub

    api = huggingface_hub.HfApi()
    api.create_repo(repo_id=repo_id, exist_ok=True)
    titles = {commit.title for commit in api.list_repo_commits(repo_id=repo_id)}
    for checkpoint in checkpoints:
        title = f"Upload checkpoint for step {checkpoint.step} ({checkpoint.version})"
        if title in titles:
            logger.info("%s already has %s", repo_id, checkpoint.path)
            continue
        with tempfile.TemporaryDirectory() as directory:
            fs, path = url_to_fs(checkpoint.path)
            fs.get(path.rstrip("/") + "/", directory + "/", recursive=True)
            api.upload_folder(folder_path=directory, repo_id=repo_id, commit_message=title)
        _tag(api, repo_id, checkpoint.version)
        logger.info("sent %s to %s", checkpoint.path, repo_id)


def _tag(api: Any, repo_id: str, tag: str) -> None:
    if any(ref.name == tag for ref in api.list_repo_refs(repo_id=repo_id).tags):
        api.delete_tag(repo_id=repo_id, tag=tag)
    api.create_tag(repo_id=repo_id, tag=tag)


def main() -> None:
    """Parse the command line and upload."""
    parser = argparse.ArgumentParser(description="Send checkpoints to Hugging Face")
    parser.add_argument("--repo-id", required=True, help="the repository, org/model")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be sent")
    parser.add_argument("--directories", nargs="+", required=True, help="directories with step-{n} directories")
    options = parser.parse_args()
    configure_logging()
    upload_gcs_to_hf(UploadConfig(options.repo_id, options.directories, options.dry_run))


if __name__ == "__main__":
    main()
