"""Numbers in files of TensorBoard and W&B."""

import json
import struct
import subprocess
from pathlib import Path

import pytest

from marin.recorded.reading.event_files import event_values, run_values
from marin.recorded.reading.metrics import StoredFiles, read_metrics

BLOCK = 32_768


def field(number: int, value: int | bytes) -> bytes:
    kind = 0 if isinstance(value, int) else 2
    return varint(number << 3 | kind) + (varint(value) if isinstance(value, int) else varint(len(value)) + value)


def varint(value: int) -> bytes:
    return bytes([value & 0x7F | 0x80]) + varint(value >> 7) if value > 0x7F else bytes([value])


def offline_run(rows: list[dict[str, object]]) -> bytes:
    """A run as wandb 0.2x writes it: records that cross blocks are in parts."""
    content = b":W&B\xe1\xbe\x00"
    for step, row in enumerate(rows):
        items = b"".join(field(1, field(2, k.encode()) + field(16, json.dumps(v).encode())) for k, v in row.items())
        record, first = field(1, step) + field(2, items + field(2, field(1, step))), True
        while record or first:
            room = BLOCK - len(content) % BLOCK
            if room < 7:
                content += bytes(room)
                continue
            part, record = record[: room - 7], record[room - 7 :]
            kind = (1 if not record else 2) if first else (4 if not record else 3)
            content += bytes(4) + struct.pack("<HB", len(part), kind) + part
            first = False
    return content


def test_what_tensorboard_writes_is_read_to_where_a_kill_cut_it_off(tmp_path: Path) -> None:
    from tensorboardX import SummaryWriter

    writer = SummaryWriter(str(tmp_path / "tensorboard" / "version_0"))
    for step in range(300):
        writer.add_scalar("train/loss", 1 / (step + 1), step * 10)
    writer.add_text("note", "no number")
    writer.add_histogram("weights", [1.0, 2.0], 1)
    writer.close()
    [file] = tmp_path.glob("tensorboard/version_0/*")
    curves, finals = read_metrics(StoredFiles(str(tmp_path)))
    assert [*curves] == ["train/loss"]
    assert (len(curves["train/loss"][0]), finals) == (300, {"train/loss": pytest.approx(1 / 300)})
    assert 0 < len([*event_values(file.read_bytes()[:-2000])]) < 300


def test_tensors_of_one_number_count() -> None:
    value = field(1, b"acc") + field(8, field(1, 1) + field(4, struct.pack("<f", 0.5)))
    event = field(2, 7) + field(5, field(1, value))
    assert [*event_values(struct.pack("<QI", len(event), 0) + event + bytes(4))] == [(7, "acc", 0.5)]


def test_an_offline_run_of_many_blocks(tmp_path: Path) -> None:
    rows: list[dict[str, object]] = [{"loss": step / 2, "note": "x" * 40_000, "_runtime": 1.5} for step in range(5)]
    place = tmp_path / "wandb" / "offline-run-1"
    place.mkdir(parents=True)
    (place / "run-1.wandb").write_bytes(offline_run(rows))
    [(steps, values)] = read_metrics(StoredFiles(str(tmp_path)))[0].values()
    assert (list(steps), list(values)) == ([0, 1, 2, 3, 4], [0.0, 0.5, 1.0, 1.5, 2.0])


def test_files_of_several_directories_stay_apart_and_damage_is_no_error(tmp_path: Path) -> None:
    for name, loss in (("a", 1.0), ("b", 2.0)):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "x.wandb").write_bytes(offline_run([{"loss": loss}]) + b"\x00garbage")
    assert read_metrics(StoredFiles(str(tmp_path)))[1] == {"runs/a/loss": 1.0, "runs/b/loss": 2.0}
    assert [*event_values(b"garbage of no form at all" * 9), *run_values(b"garbage of no form" * 99)] == []


@pytest.mark.soak
def test_what_wandb_itself_writes(tmp_path: Path) -> None:
    script = "import wandb, sys; run = wandb.init(project='p', dir=sys.argv[1], mode='offline')\n"
    script += "for step in range(2000): run.log({'train': {'loss': step / 2}, 'note': 'x' * 40})\nrun.finish()"
    command = ["uv", "run", "-q", "--no-project", "--with", "wandb", "python", "-c", script, str(tmp_path)]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    assert len(read_metrics(StoredFiles(str(tmp_path)))[0]["train.loss"][0]) == 2000
