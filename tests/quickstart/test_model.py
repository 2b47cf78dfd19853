"""Tokens, training, evaluation and report, on very little."""

import math
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiments.quickstart_steps.evaluation import bits_per_byte, unigram_loss, windows
from experiments.quickstart_steps.storage import read_json, sha256, write_rows
from experiments.quickstart_steps.tokens import (
    PackConfig,
    TokenizerConfig,
    end_of_text,
    load_heldout,
    load_tokenizer,
    load_train,
    pack_documents,
    pack_sequences,
    read_manifest,
    train_tokenizer,
)
from experiments.quickstart_steps.training import TrainConfig, batch_rows, train_model
from rigging.errors import InvalidRequest

pytestmark = pytest.mark.process

TEXTS = [
    f"The heron number {n} stood in the water — as still as a post — and looked at fish {n * 7}." for n in range(40)
]


@pytest.fixture(scope="module")
def tokens(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tokenizer, and tokens packed with it."""
    root = tmp_path_factory.mktemp("tokens")
    write_rows(str(root / "train.jsonl"), [{"id": f"{n:02}", "text": text} for n, text in enumerate(TEXTS)])
    write_rows(str(root / "heldout.jsonl"), [{"id": "x", "text": "The heron stood — in the water."}])
    train_tokenizer(TokenizerConfig(str(root / "train.jsonl"), 300, 10**6, str(root)))
    pack_documents(PackConfig(str(root), str(root), 16, 2, 0, str(root / "packed")))
    return root


def config_of(tokens: Path, output: Path) -> TrainConfig:
    return TrainConfig(
        tokens=str(tokens / "packed"), steps=60, batch=4, learning_rate=0.01, layers=1, width=16, heads=2, seed=0,
        checkpoint_every=16, output_path=str(output),
    )  # fmt: skip


@pytest.fixture(scope="module")
def trained(tokens: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that was trained in one go."""
    output = tmp_path_factory.mktemp("trained")
    train_model(config_of(tokens, output))
    return output


def test_the_manifest_says_what_the_shards_are_and_a_changed_one_is_not_read(tokens: Path, tmp_path: Path) -> None:
    manifest = read_manifest(str(tokens / "packed"))
    files = manifest["train"]["files"]
    assert [file["name"] for file in files] == ["train-00000-of-00002.npy", "train-00001-of-00002.npy"]
    for file in files:
        assert file["sha256"] == sha256((tokens / "packed" / file["name"]).read_bytes())
    train = load_train(str(tokens / "packed"))
    assert train.shape == (manifest["train"]["sequences"], 17)
    assert manifest["train"]["documents"] == 40
    tokenizer, heldout = load_tokenizer(str(tokens)), load_heldout(str(tokens / "packed")).tolist()
    assert heldout[0] == heldout[-1] == end_of_text(tokenizer)
    assert tokenizer.decode(heldout) == "The heron stood — in the water."
    assert manifest["heldout"]["bytes"] == len("The heron stood — in the water.".encode())
    shutil.copytree(tokens / "packed", tmp_path, dirs_exist_ok=True)
    damaged = tmp_path / files[1]["name"]
    damaged.write_bytes(damaged.read_bytes()[:-1] + bytes([damaged.read_bytes()[-1] ^ 1]))
    with pytest.raises(InvalidRequest, match=r"train-00001-of-00002\.npy has the digest .*, but the manifest has"):
        load_train(str(tmp_path))


def test_figures_of_the_evaluation_are_of_every_token_but_the_first_once() -> None:
    rows, real = windows(np.arange(10, 30), 8)
    assert rows.shape == (3, 9)
    assert rows[:, 1:][real].tolist() == list(range(11, 30))
    assert bits_per_byte(math.log(256), 10, 10) == pytest.approx(8)
    counted = -(math.log(3 / 5) + math.log(2 / 5)) / 2
    assert unigram_loss(np.array([0, 0, 1]), np.array([0, 1]), 2) == pytest.approx(counted)


def test_sequences_overlap_by_one_token_and_are_shuffled() -> None:
    packed = pack_sequences(range(1000), 9, seed=0)
    assert packed.shape == (111, 10)
    assert packed.dtype == np.uint16
    in_order = packed[packed[:, 0].argsort()]
    assert in_order.tolist() == [list(range(n * 9, n * 9 + 10)) for n in range(111)]
    assert packed.tolist() != in_order.tolist()
    assert pack_sequences(range(1000), 9, seed=1).tolist() != packed.tolist()


def test_too_little_text_is_told_by_packing_and_by_training(tokens: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match=r"too little text: .* fewer than the 2 shards"):
        pack_documents(PackConfig(str(tokens), str(tokens), 10**6, 2, 0, str(tmp_path)))
    config = replace(config_of(tokens, tmp_path), batch=10**6)
    with pytest.raises(InvalidRequest, match=r"too little text to train on: .* and one batch has 1000000"):
        train_model(config)
    with pytest.raises(InvalidRequest, match="width 16 cannot be divided among 3 heads"):
        train_model(replace(config, heads=3))
    with pytest.raises(InvalidRequest, match="steps is 0, and must be 1 or more"):
        train_model(replace(config, steps=0))


def test_batches_take_each_sequence_once_before_any_comes_again() -> None:
    rows = [row for step in range(10) for row in batch_rows(8, 4, 0, step)]
    epochs = [rows[place : place + 8] for place in range(0, 40, 8)]
    assert all(sorted(epoch) == list(range(8)) for epoch in epochs)
    assert epochs[0] != epochs[1]
    assert [row for step in range(7) for row in batch_rows(5, 3, 0, step)][:5] != [0, 1, 2, 3, 4]
    assert batch_rows(2, 5, 0, 1).tolist() == batch_rows(2, 5, 0, 1).tolist()


def test_training_goes_on_from_a_checkpoint_as_if_it_had_never_stopped(
    tokens: Path, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stats = read_json(str(trained / "stats.json"))
    assert stats["losses"][-1] < stats["losses"][0]
    assert not list((trained / "checkpoints").iterdir())

    class Killed(BaseException):
        pass

    def watch(done: int) -> None:
        if done == 50:
            raise Killed

    with pytest.raises(Killed):
        train_model(config_of(tokens, tmp_path), on_step=watch)
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == ["step-000032.npz", "step-000048.npz"]
    steps: list[int] = []
    train_model(config_of(tokens, tmp_path), on_step=steps.append)
    assert steps == list(range(49, 61))
    assert "resuming from the checkpoint of step 48 of 60" in capsys.readouterr().out
    assert read_json(str(tmp_path / "stats.json"))["losses"] == pytest.approx(stats["losses"], abs=1e-4)
    with np.load(trained / "parameters.npz") as one, np.load(tmp_path / "parameters.npz") as other:
        assert set(one.files) == set(other.files)
        assert all(np.allclose(one[name], other[name], atol=1e-4) for name in one.files)
