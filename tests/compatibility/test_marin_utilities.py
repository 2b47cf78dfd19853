"""marin.utils and marin.utilities as older experiments call them."""

import datetime
import enum
import inspect
import json
import logging
import os
import subprocess
import sys
import types
from dataclasses import dataclass
from pathlib import Path

import pytest

from marin.execution import ExecutorStep, output_path_of
from marin.utilities.dataclass_utils import asdict_without_nones
from marin.utilities.executor_utils import ckpt_path_to_step_name
from marin.utilities.json_encoder import CustomJsonEncoder
from marin.utils import get_directory_friendly_name, is_path_like, load_dataset_with_backoff


@pytest.fixture
def module(monkeypatch):
    """Make a module that is not installed here."""

    def make(name, **members):
        made = types.ModuleType(name)
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, name, made)
        return made

    return make


@pytest.mark.compatible("marin.utils.get_directory_friendly_name(name)", since="0.1.0")
def test_a_repository_as_a_directory():
    assert get_directory_friendly_name("meta-llama/Llama-3.1#x") == "meta-llama--Llama-3-1-x"


@pytest.mark.compatible("marin.utils.is_path_like(path)", since="0.1.0")
def test_what_is_a_path(tmp_path):
    assert is_path_like("gs://bucket/model")
    assert is_path_like("mirror://model")
    assert is_path_like(str(tmp_path))
    assert not is_path_like("meta-llama/Llama-3.1-8B")


class HTTPError(Exception):
    def __init__(self, status):
        super().__init__(f"status {status}")
        self.response = types.SimpleNamespace(status_code=status)


@pytest.mark.compatible(
    "marin.utils.load_dataset_with_backoff(*, context, max_attempts=6, initial_delay=2.0, max_delay=120.0, **kwargs)",
    since="0.1.0",
)
def test_a_dataset_is_loaded_again_when_the_hub_is_busy(module, caplog):
    caplog.set_level(logging.INFO, "rigging.timing.retries")
    errors = [HTTPError(429), HTTPError(503), ConnectionError("reset"), TimeoutError(), RuntimeError("Rate limit hit")]
    asked = []

    def load_dataset(**kwargs):
        asked.append(kwargs)
        if errors:
            raise errors.pop(0)
        return ["row"]

    module("datasets", load_dataset=load_dataset)
    quick = {"initial_delay": 0.001, "max_delay": 0.002}
    rows = load_dataset_with_backoff(context="dolma", path="allenai/dolma", split="train", **quick)
    assert rows == ["row"]
    assert asked == [{"path": "allenai/dolma", "split": "train"}] * 6
    assert caplog.text.count("next in 0.00 s") == 5, "pauses are as short as the caller asks for"
    errors[:] = [HTTPError(404)]
    with pytest.raises(HTTPError, match="404"):
        load_dataset_with_backoff(context="dolma", path="x", **quick)
    errors[:] = [HTTPError(429)] * 9
    with pytest.raises(HTTPError, match="429"):
        load_dataset_with_backoff(context="dolma", path="x", max_attempts=2, **quick)
    assert len(errors) == 7
    parameters = inspect.signature(load_dataset_with_backoff).parameters
    defaults = {name: parameters[name].default for name in ("max_attempts", "initial_delay", "max_delay")}
    assert defaults == {"max_attempts": 6, "initial_delay": 2.0, "max_delay": 120.0}


@pytest.mark.compatible("marin.utilities.executor_utils.ckpt_path_to_step_name(path or InputName)", since="0.1.0")
def test_names_of_checkpoints():
    train = ExecutorStep("checkpoints/llama-8b", None, None)
    for path, name in {
        "meta-llama/Meta-Llama-3.1-8B": "Meta-Llama-3.1-8B",
        "checkpoints/llama-8b/checkpoints/step-730000": "llama-8b-730000",
        "gs://b/checkpoints/llama-8b/checkpoints/step-730000/": "llama-8b-730000",
        "gs://bucket/models/mine/": "mine",
        output_path_of(train): "llama-8b",
        output_path_of(train, "checkpoints/step-100"): "llama-8b-100",
        output_path_of(train, "hf/step-100/"): "llama-8b-100",
        output_path_of(train, "hf"): "hf",
    }.items():
        assert ckpt_path_to_step_name(path) == name
    for wrong in (
        "checkpoints/llama-8b/checkpoints",
        "gs://b/checkpoints/llama-8b/checkpoints/latest",
        output_path_of(train, "checkpoints/latest"),
        7,
        None,
    ):
        with pytest.raises(ValueError, match=r"checkpoint|expected a path"):
            ckpt_path_to_step_name(wrong)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Inner:
    a: int
    b: str | None = None


@dataclass
class Outer:
    inner: Inner
    when: datetime.timedelta | None = None


@pytest.mark.compatible("marin.utilities.json_encoder.CustomJsonEncoder", since="0.1.0")
def test_json_of_anything(caplog):
    value = {
        "time": datetime.timedelta(days=1, seconds=2, microseconds=3),
        "path": Path("/a/b"),
        "enum": Colour.RED,
        "data": Outer(Inner(1)),
    }
    assert json.loads(json.dumps(value, cls=CustomJsonEncoder)) == {
        "time": {"days": 1, "seconds": 2, "microseconds": 3},
        "path": "/a/b",
        "enum": "red",
        "data": {"inner": {"a": 1, "b": None}, "when": None},
    }
    assert not caplog.records
    assert json.dumps(complex(1, 2), cls=CustomJsonEncoder) == '"(1+2j)"'
    assert "complex" in caplog.text


@pytest.mark.compatible("marin.utilities.dataclass_utils.asdict_without_nones(obj)", since="0.1.0")
def test_a_dataclass_without_what_is_not_set():
    assert asdict_without_nones(Outer(Inner(1))) == {"inner": {"a": 1}}
    with pytest.raises(ValueError, match="dataclass"):
        asdict_without_nones({"a": None})


@pytest.mark.compatible(
    "marin.utilities.wandb_utils.init_wandb(*, run_name?, tags?, config?, entity=WANDB_ENTITY, project=WANDB_PROJECT)",
    since="0.1.0",
)
def test_a_run_begins_where_there_is_a_key(module, monkeypatch, caplog):
    from marin.utilities.wandb_utils import WANDB_ENTITY, WANDB_PROJECT, init_wandb

    begun = []
    module("wandb", init=lambda **kwargs: begun.append(kwargs) or "the run")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    caplog.set_level("INFO")
    assert init_wandb(run_name="x") is None
    assert "WANDB_API_KEY" in caplog.text
    monkeypatch.setenv("WANDB_API_KEY", "key")
    assert init_wandb(run_name="x", tags=["t"], config={"lr": 1}) == "the run"
    expected = {"entity": WANDB_ENTITY, "project": WANDB_PROJECT, "name": "x", "tags": ["t"], "config": {"lr": 1}}
    assert begun == [expected]
    monkeypatch.setenv("WANDB_RUN_NAME", "from the environment")
    init_wandb()
    assert begun[1]["name"] == "from the environment"


@pytest.mark.compatible("marin.utilities.wandb_utils.WANDB_ENTITY, WANDB_PROJECT: from the environment", since="0.1.0")
def test_whose_runs_they_are_is_said_by_the_environment():
    program = "from marin.utilities.wandb_utils import WANDB_ENTITY as e, WANDB_PROJECT as p; print(e, p)"
    environment = {**os.environ, "WANDB_ENTITY": "ours", "WANDB_PROJECT": "moons"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["ours", "moons"]


@pytest.mark.compatible("marin.utilities.upload_gcs_to_hf.upload_gcs_to_hf(UploadConfig(...))", since="0.1.0")
def test_checkpoints_are_sent_once(module, tmp_path, caplog):
    from marin.utilities.upload_gcs_to_hf import UploadConfig, upload_gcs_to_hf

    for number in (20, 3):
        directory = tmp_path / "checkpoints" / "llama-8b" / "hf" / f"step-{number}"
        directory.mkdir(parents=True)
        (directory / "weights").write_text(str(number))
    (tmp_path / "checkpoints" / "llama-8b" / "hf" / "notes").mkdir()
    sent, tags = [], []

    class Hub:
        def create_repo(self, repo_id, exist_ok):
            assert exist_ok

        def list_repo_commits(self, repo_id):
            return [types.SimpleNamespace(title=title) for title, _ in sent]

        def upload_folder(self, folder_path, repo_id, commit_message):
            sent.append((commit_message, Path(folder_path, "weights").read_text()))

        def list_repo_refs(self, repo_id):
            return types.SimpleNamespace(tags=[types.SimpleNamespace(name=tag) for tag in tags])

        def delete_tag(self, repo_id, tag):
            tags.remove(tag)

        def create_tag(self, repo_id, tag):
            tags.append(tag)

    module("huggingface_hub", HfApi=Hub)
    run = f"{tmp_path}/checkpoints/llama-8b/hf/"
    config = UploadConfig(hf_repo_id="org/model", gcs_directories=[run], dry_run=True)
    caplog.set_level("INFO")
    upload_gcs_to_hf(config)
    assert sent == []
    assert "step-20" in caplog.text
    config.dry_run = False
    for _ in range(2):
        upload_gcs_to_hf(config)
    assert sent == [
        ("Upload checkpoint for step 3 (llama-8b)", "3"),
        ("Upload checkpoint for step 20 (llama-8b)", "20"),
    ]
    assert tags == ["llama-8b"]


@pytest.mark.compatible("marin.utilities.validation_utils: summarize_document, write_provenance_json", since="0.1.0")
def test_documents_are_summed_up(tmp_path):
    from marin.utilities.validation_utils import (
        DocumentSummary,
        compute_global_mean_std,
        summarize_document,
        write_provenance_json,
    )

    document = {"id": "1", "source": "web", "text": "né"}
    assert summarize_document(document) == DocumentSummary(len(json.dumps(document)), 3)
    with pytest.raises(ValueError, match="text"):
        summarize_document({"id": "1", "source": "web"})
    write_provenance_json(str(tmp_path), {"dataset": "x"})
    written = json.loads((tmp_path / "provenance.json").read_text())
    assert written["dataset"] == "x"
    assert datetime.datetime.fromisoformat(written["access_time"]).tzinfo is not None
    statistics = compute_global_mean_std([2, 2], [1.0, 3.0], [0.0, 0.0])
    assert (statistics.count, statistics.mean, statistics.std) == (4, 2.0, 1.0)


@pytest.mark.compatible(
    "import marin.execution, marin.utils, marin.utilities.*: no jax, wandb, datasets", since="0.1.0"
)
def test_heavy_libraries_are_imported_only_when_they_are_called():
    import pkgutil

    import marin.utilities

    modules = ["marin.execution", "marin.utils"]
    modules += [f"marin.utilities.{found.name}" for found in pkgutil.iter_modules(marin.utilities.__path__)]
    program = (
        "import sys\n"
        "class Refuse:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.partition('.')[0] in ('jax', 'wandb', 'datasets', 'huggingface_hub', 'torch', 'draccus'):\n"
        "            raise SystemExit(f'{name} is imported')\n"
        "sys.meta_path.insert(0, Refuse())\n"
    ) + "".join(f"import {name}\n" for name in modules)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    refused = subprocess.run(
        [sys.executable, "-c", f"{program}import jax"], capture_output=True, text=True, check=False
    )
    assert (refused.returncode, refused.stderr) == (1, "jax is imported\n"), "it would have been noticed"
