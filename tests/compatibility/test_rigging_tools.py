"""rigging's locks, configs, redaction and logging as older programs call them."""

import logging
import subprocess
import sys
import threading
import time

import pytest

from rigging.config_discovery import find_configs, list_cluster_configs, resolve_cluster_config
from rigging.distributed_lock import (
    FsspecLease,
    GcsLease,
    LeaseLostError,
    LocalFileLease,
    S3Lease,
    create_lock,
    default_worker_id,
)
from rigging.log_setup import (
    LogRingBuffer,
    configure_logging,
    get_global_buffer,
    install_fault_handler,
    slow_log,
)
from rigging.redaction import REDACTED_VALUE, is_sensitive_key_name, looks_like_key, redact_value


def assert_they_exclude_each_other(kind, path):
    mine, other = kind(path, "worker-1"), kind(path, "worker-2")
    assert (mine.lock_path, mine.worker_id) == (path, "worker-1")
    assert mine.try_acquire()
    assert mine.try_acquire(), "its holder may acquire it again"
    assert not other.try_acquire()
    assert other.has_active_holder()
    assert not create_lock(path, "worker-3").try_acquire(), "one lease, by whichever name"
    mine.refresh()
    mine.release()
    with pytest.raises(LeaseLostError):
        mine.refresh()
    assert not other.has_active_holder()
    assert other.try_acquire()
    other.release()


@pytest.mark.compatible("rigging.distributed_lock.LocalFileLease(lock_path, worker_id?)", since="0.1.0")
def test_a_lease_on_a_local_file(tmp_path):
    assert_they_exclude_each_other(LocalFileLease, str(tmp_path / "deep" / "lock"))


@pytest.mark.compatible("rigging.distributed_lock.FsspecLease(lock_path, worker_id?)", since="0.1.0")
def test_a_lease_on_any_filesystem(tmp_path):
    assert_they_exclude_each_other(FsspecLease, f"memory://{tmp_path.name}/lock")


@pytest.mark.compatible("rigging.distributed_lock.GcsLease(lock_path, worker_id?)", since="0.1.0")
def test_a_lease_on_gcs(gcs_server, tmp_path):
    assert_they_exclude_each_other(GcsLease, f"gs://old-us-central2/{tmp_path.name}/lock")
    with pytest.raises(ValueError, match="gs://"):
        GcsLease(str(tmp_path))


@pytest.mark.compatible("rigging.distributed_lock.S3Lease(lock_path, worker_id?)", since="0.1.0")
def test_a_lease_on_s3(s3_server, tmp_path):
    assert_they_exclude_each_other(S3Lease, f"s3://old-s3/{tmp_path.name}/lock")


@pytest.mark.compatible("rigging.distributed_lock.default_worker_id()", since="0.1.0")
def test_a_worker_is_a_thread_of_a_process(tmp_path):
    mine = default_worker_id()
    assert mine == default_worker_id()
    others = []
    thread = threading.Thread(target=lambda: others.append(default_worker_id()))
    thread.start()
    thread.join()
    program = "from rigging.distributed_lock import default_worker_id; print(default_worker_id())"
    others.append(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)
    assert len({mine, *(other.strip() for other in others)}) == 3
    assert LocalFileLease(str(tmp_path / "lock")).worker_id == mine


@pytest.mark.compatible("rigging.config_discovery.find_configs(dirs, name?)", since="0.1.0")
@pytest.mark.compatible("rigging.config_discovery.list_cluster_configs(dirs)", since="0.1.0")
@pytest.mark.compatible("rigging.config_discovery.resolve_cluster_config(name, dirs)", since="0.1.0")
def test_clusters_are_found_in_the_callers_directories(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, names in ((first, ("a.yaml", "b.yml")), (second, ("a.yaml", "c.yaml", "notes.txt"))):
        directory.mkdir()
        for name in names:
            (directory / name).write_text("{}")
    dirs = [first, str(second), tmp_path / "missing"]
    assert list_cluster_configs(dirs) == {"a": first / "a.yaml", "b": first / "b.yml", "c": second / "c.yaml"}
    assert find_configs(dirs, "a") == find_configs(dirs, name="a") == {"a": first / "a.yaml"}
    assert resolve_cluster_config("c", dirs) == resolve_cluster_config("c.yaml", dirs) == second / "c.yaml"
    assert resolve_cluster_config(str(second / "a.yaml"), dirs) == second / "a.yaml"
    with pytest.raises(FileNotFoundError) as refused:
        resolve_cluster_config("d", dirs)
    assert str(first) in str(refused.value) or "known clusters: a, b, c" in str(refused.value)


@pytest.mark.compatible("rigging.redaction.REDACTED_VALUE", since="0.1.0")
@pytest.mark.compatible("rigging.redaction.is_sensitive_key_name(name)", since="0.1.0")
@pytest.mark.compatible("rigging.redaction.looks_like_key(value)", since="0.1.0")
def test_secrets_are_known_by_name_and_look():
    for name in ("WANDB_API_KEY", "HF_TOKEN", "password", "client_secret"):
        assert is_sensitive_key_name(name)
    for name in ("max_tokens", "TOKENIZERS_PARALLELISM", "cache_key", "AUTHOR"):
        assert not is_sensitive_key_name(name)
    assert looks_like_key("aB3dE5fG7hI9jK1lM3nO5pQ7")
    for harmless in ("short1A", "a" * 40, "two words that are long enough", "gs://bucket/a/path/of/data.jsonl"):
        assert not looks_like_key(harmless)
    assert redact_value({"HF_TOKEN": "x"}) == {"HF_TOKEN": REDACTED_VALUE}


@pytest.mark.compatible("rigging.log_setup.slow_log(log, operation, threshold_ms=100)", since="0.1.0")
def test_what_is_slow_is_logged(caplog):
    log = logging.getLogger("old.program")
    with slow_log(log, "quick read", threshold_ms=60_000):
        pass
    assert not caplog.records
    with slow_log(log, "read of shard 3", threshold_ms=1):
        time.sleep(0.002)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "read of shard 3" in record.getMessage()


@pytest.mark.compatible("rigging.log_setup.install_fault_handler(*, sigusr_dump=True) -> bool", since="0.1.0")
def test_a_crash_leaves_a_stack(monkeypatch):
    program = (
        "import os, signal; from rigging.log_setup import install_fault_handler as install\n"
        "assert install() and install()\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "os.kill(os.getpid(), signal.SIGSEGV)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -11
    assert "Segmentation fault" in done.stderr
    assert done.stderr.count('File "<string>"') >= 2
    monkeypatch.setenv("RIGGING_DISABLE_FAULTHANDLER", "1")
    assert install_fault_handler() is False


@pytest.mark.compatible("rigging.log_setup.LogRingBuffer(maxlen=5000)", since="0.1.0")
@pytest.mark.compatible("rigging.log_setup.get_global_buffer()", since="0.1.0")
def test_the_last_log_lines_are_kept(caplog):
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    try:
        buffer = configure_logging(logging.INFO)
        assert isinstance(buffer, LogRingBuffer)
        assert buffer is get_global_buffer()
        logging.getLogger("old.program").warning("shard %d is slow", 3)
        (record,) = get_global_buffer().query(prefix="old.program", limit=1)
        assert (record.level, record.logger_name) == ("WARNING", "old.program")
        assert "shard 3 is slow" in record.message
        logging.getLogger("old.program").warning("again")
        (newer,) = get_global_buffer().query_since(record.seq, prefix="old")
        assert newer.message.endswith("again")
        short = LogRingBuffer(maxlen=2)
        for number in range(3):
            short.add(logging.makeLogRecord({"name": "old.program"}), f"line {number}")
        assert [kept.message for kept in short.query()] == ["line 1", "line 2"]
    finally:
        root.setLevel(level)
        for handler in set(root.handlers) - set(handlers):
            root.removeHandler(handler)
