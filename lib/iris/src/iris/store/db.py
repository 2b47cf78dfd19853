"""Opens and migrates the controller's database: one writer, private files."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Final

from iris.store.damage import DATABASE_NAME, DatabaseDamaged, content_damage, file_damage, is_corruption
from rigging.errors import Conflict, MarinError
from rigging.filesystem.atomic import sync_names
from rigging.process.file_lock import open_lock_file, try_lock

__all__ = [
    "DATABASE_NAME",
    "SchemaTooNew",
    "SchemaTooOld",
    "connect",
    "lock",
    "migrate_to",
    "migrations",
    "schema_version",
]

MIGRATIONS: Final = Path(__file__).parent / "migrations"
_LOCK_NAME: Final = "iris.db.lock"


class SchemaTooNew(Conflict):
    """A newer release wrote the database."""


class SchemaTooOld(Conflict):
    """An older release wrote the database, and this one cannot migrate its schema."""


def migrations(folder: Path = MIGRATIONS) -> list[tuple[int, Path]]:
    """Return the numbered scripts (`NNNN_what.sql`) in order. The first creates the schema; the others migrate it."""
    found = sorted((int(path.name.partition("_")[0]), path) for path in folder.glob("*.sql"))
    first = found[0][0]
    if [number for number, _ in found] != list(range(first, first + len(found))):
        raise MarinError(f"the migrations in {folder} are not numbered in a row: {[p.name for _, p in found]}")
    return found


def lock(state_dir: Path) -> int:
    """Become the only writer of the database in `state_dir`, and return the descriptor of the lock.

    Raise Conflict if another process is the writer.
    """
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chmod(state_dir, 0o700)
    descriptor = open_lock_file(state_dir / _LOCK_NAME)
    if not try_lock(descriptor):
        os.close(descriptor)
        raise Conflict(f"another controller already uses {state_dir}: stop it or use another")
    return descriptor


def connect(state_dir: Path) -> sqlite3.Connection:
    """Open or create (mode 0600) the database in `state_dir`, and migrate its schema to this release.

    Raise SchemaTooNew, SchemaTooOld, DatabaseDamaged, or another MarinError if the database is not usable.
    """
    path = state_dir / DATABASE_NAME
    damage = file_damage(path)
    if damage:
        raise DatabaseDamaged(path, damage)
    if not path.exists():
        _make(path)
    connection = sqlite3.connect(path, isolation_level=None, cached_statements=64)
    try:
        os.chmod(path, 0o600)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA busy_timeout=10000")
        damage = content_damage(connection, path)
        if damage:
            raise DatabaseDamaged(path, damage)
        connection.execute("PRAGMA journal_mode=WAL")
        _migrate(connection, path)
    except sqlite3.DatabaseError as error:
        connection.close()
        if is_corruption(error):
            raise DatabaseDamaged(path, str(error)) from error
        raise MarinError(f"cannot use the database {path}: {error}") from error
    except MarinError:
        connection.close()
        raise
    return connection


def _make(path: Path) -> None:
    """Create an empty database atomically, so that a file without tables must be damaged."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    # Created here, as SQLite would follow the umask; its -wal file takes over the mode of the main file.
    os.close(os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        with closing(sqlite3.connect(fresh, isolation_level=None)) as connection:
            migrate_to(connection, migrations()[-1][0])
    except sqlite3.Error as error:
        raise MarinError(f"cannot create the database {path}: {error}") from error
    os.replace(fresh, path)
    sync_names(path)


def schema_version(connection: sqlite3.Connection) -> int:
    """Return the number of the last applied migration; 0 for an empty database."""
    connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version INTEGER NOT NULL)")
    row = connection.execute("SELECT max(version) FROM schema_version").fetchone()
    return int(row[0] or 0)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    (first, _), (last, _) = migrations()[0], migrations()[-1]
    version = schema_version(connection)
    if version > last:
        raise SchemaTooNew(
            f"the database {path} has schema version {version}, this release knows versions up to {last}: "
            "use the newer release of iris that wrote it"
        )
    if version < first:
        raise SchemaTooOld(
            f"the database {path} has schema version {version}, this release knows versions from {first} on. Nothing "
            "was changed: use the release of iris that wrote it, or move the state directory aside"
        )
    migrate_to(connection, last)


def migrate_to(connection: sqlite3.Connection, version: int, folder: Path = MIGRATIONS) -> None:
    """Apply the missing migrations up to `version`, each in its own transaction."""
    present = schema_version(connection)
    for number, script in [step for step in migrations(folder) if present < step[0] <= version]:
        # executescript commits what is open first, so the transaction is part of the script.
        connection.executescript(
            f"BEGIN IMMEDIATE;\n{script.read_text()}\nINSERT INTO schema_version VALUES ({number});\nCOMMIT;"
        )
