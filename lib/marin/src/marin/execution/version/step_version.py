"""The version of a step and its hash. Paths of existing data depend on both."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from marin.execution.config.regions import warn_of_region_buckets
from marin.execution.config.step import ExecutorStep
from marin.execution.config.walk import CollectedConfig, collect_dependencies_and_version
from marin.execution.version.canonical import canonical_text, string_text
from marin.execution.version.graph import dependencies_first
from marin.execution.version.rope import Rope, rope
from rigging.errors import InvalidRequest

# A dependency whose own chain of blocking dependencies is longer than this is quoted by name and hash alone.
MAX_QUOTED_DEPTH = 4
HASH_DIGITS = 6

# Every region's bucket has a name of this beginning, by whichever scheme it is written.
_REGIONAL = b"://marin-"

Step = ExecutorStep[Any]
_BeginningKey = tuple[bytes, tuple[Step, ...]]
HashText = Callable[[Rope, Any], Any]


class _LongDigest:
    """The MD5 of a long text. Another thread hashes the beginning."""

    def __init__(self, begun: Future[Any], ending: Rope, hash_text: HashText) -> None:
        self._hash_text = hash_text
        self._begun = begun
        self._ending = ending
        self._hex: str | None = None

    def result(self) -> str:
        """Return all 32 hex digits. The first call waits for the beginning and hashes the ending."""
        if self._hex is None:
            self._hex = self._hash_text(self._ending, self._begun.result().copy()).hexdigest()
        return self._hex


@dataclass(frozen=True, slots=True)
class StepVersion:
    """The identity of one step's output.

    Attributes:
        version: `{"name", "config", "dependencies"[, "pseudo_dependencies"]}`; dependencies share their dicts.
        text: `json.dumps(version, sort_keys=True)`, in UTF-8 (pure ASCII).
        digest_source: The MD5 of the text, all 32 hex digits; for a long text its running computation.
        depth: The number of blocking dependencies in the longest chain below the step.
        dependencies: The blocking dependencies, one entry per reference.
        pseudo_dependencies: The non-blocking dependencies, likewise.
    """

    version: dict[str, Any]
    text: Rope
    digest_source: str | _LongDigest
    depth: int
    dependencies: tuple[Step, ...]
    pseudo_dependencies: tuple[Step, ...]

    @property
    def digest(self) -> str:
        """The MD5 of the text, all 32 hex digits. Waits for the computation."""
        source = self.digest_source
        return source if isinstance(source, str) else source.result()

    @property
    def hash_id(self) -> str:
        """The hash in the output path."""
        return self.digest[:HASH_DIGITS]

    @property
    def hashed_name(self) -> str:
        """The output path, relative to the prefix."""
        return f"{self.version['name']}-{self.hash_id}"

    @property
    def quoted(self) -> dict[str, Any] | str:
        """The form in which a dependant's version quotes this step."""
        return self.version if self.depth <= MAX_QUOTED_DEPTH else self.hashed_name

    @property
    def quoted_text(self) -> bytes | Rope:
        """`quoted` as JSON text."""
        return self.text if self.depth <= MAX_QUOTED_DEPTH else json.dumps(self.hashed_name).encode()


class VersionCache:
    """Versions of steps, each computed once, so that the work is linear in the size of the graph.

    A step's config must not change after its version was requested.

    Args:
        hash_text: Hashes the parts of long texts.
    """

    def __init__(self, hash_text: HashText | None = None) -> None:
        self._hash_text = hash_text or hash_text_md5
        self._collected: dict[Step, CollectedConfig] = {}
        self._versions: dict[Step, StepVersion] = {}
        self._beginnings: dict[_BeginningKey, Future[Any]] = {}
        # Made for the first long text; its threads end with this cache.
        self._hashers: ThreadPoolExecutor | None = None

    def version_of(self, step: Step) -> StepVersion:
        """Return the version of a step. Its dependencies' versions are computed first.

        Raises:
            InvalidRequest: A versioned value has no stable encoding (the message names step and field), or there is a
                cycle.
        """
        version = self._versions.get(step)
        if version is not None:
            return version
        if all(reference in self._versions for reference in self._references(step)):
            version = self._versions[step] = self._compute(step)
            return version
        for node in dependencies_first([step], self._references, _name_of, self._versions.__contains__):
            self._versions[node] = self._compute(node)
        return self._versions[step]

    def _references(self, step: Step) -> list[Step]:
        collected = self._collect(step)
        if not collected.pseudo_dependencies:
            return collected.dependencies
        return [*collected.dependencies, *collected.pseudo_dependencies]

    def _collect(self, step: Step) -> CollectedConfig:
        collected = self._collected.get(step)
        if collected is None:
            try:
                collected = collect_dependencies_and_version(step.config)
            except InvalidRequest as error:
                raise type(error)(f"step {step.name!r}: {error}") from error
            self._collected[step] = collected
        return collected

    def _compute(self, step: Step) -> StepVersion:
        collected = self._collect(step)
        config_text = canonical_text(collected.version).encode()
        if _REGIONAL in config_text:
            warn_of_region_buckets(step.name, collected.version)
        name_text = string_text(step.name).encode()
        if collected.dependencies or collected.pseudo_dependencies:
            return self._compute_quoting(step, collected, config_text, name_text)
        content = b'{"config": %b, "dependencies": [], "name": %b}' % (config_text, name_text)
        return StepVersion(
            version={"name": step.name, "config": collected.version, "dependencies": []},
            text=rope([content]),
            digest_source=hashlib.md5(content, usedforsecurity=False).hexdigest(),
            depth=0,
            dependencies=(),
            pseudo_dependencies=(),
        )

    def _compute_quoting(
        self, step: Step, collected: CollectedConfig, config_text: bytes, name_text: bytes
    ) -> StepVersion:
        dependencies = tuple(collected.dependencies)
        pseudo_dependencies = tuple(collected.pseudo_dependencies)
        quotes = [self._versions[dependency] for dependency in dependencies]
        pseudo_quotes = [self._versions[dependency] for dependency in pseudo_dependencies]
        version: dict[str, Any] = {
            "name": step.name,
            "config": collected.version,
            "dependencies": [quote.quoted for quote in quotes],
        }
        if pseudo_quotes:
            version["pseudo_dependencies"] = [quote.quoted for quote in pseudo_quotes]

        # The text of json.dumps(version, sort_keys=True), spliced from texts that exist already.
        beginning = [b'{"config": ', config_text, b', "dependencies": ', *_list_text(quotes)]
        ending: list[bytes | Rope] = [b', "name": ', name_text]
        if pseudo_quotes:
            ending += [b', "pseudo_dependencies": ', *_list_text(pseudo_quotes)]
        ending.append(b"}")
        text = rope([*beginning, *ending])
        digest: str | _LongDigest
        if not text.is_flat:
            shared = rope(beginning)
            text, digest = rope([shared, *ending]), self._digest((config_text, dependencies), shared, rope(ending))
        else:
            digest = hashlib.md5(bytes(text), usedforsecurity=False).hexdigest()
        return StepVersion(
            version=version,
            text=text,
            digest_source=digest,
            depth=1 + max(quote.depth for quote in quotes) if quotes else 0,
            dependencies=dependencies,
            pseudo_dependencies=pseudo_dependencies,
        )

    def _digest(self, key: _BeginningKey, beginning: Rope, ending: Rope) -> _LongDigest:
        """Return the MD5 of beginning + ending. Another thread hashes a shared beginning once.

        hashlib releases the interpreter lock, so the beginnings for a layer of steps are hashed in parallel before the
        first digest is needed. The threads never wait for each other.
        """
        if self._hashers is None:
            self._hashers = ThreadPoolExecutor(os.cpu_count() or 1, thread_name_prefix="marin-version")
        begun = self._beginnings.get(key)
        if begun is None:
            begun = self._beginnings[key] = self._hashers.submit(self._hash_text, beginning, None)
        return _LongDigest(begun, ending, self._hash_text)


def hash_text_md5(text: Rope, hasher: Any) -> Any:
    """Feed a text to a hasher (default: a new MD5) and return it."""
    hasher = hashlib.md5(usedforsecurity=False) if hasher is None else hasher
    for chunk in text.chunks():
        hasher.update(chunk)
    return hasher


def _name_of(step: Step) -> str:
    return step.name


def _list_text(quotes: list[StepVersion]) -> list[bytes | Rope]:
    pieces: list[bytes | Rope] = [b"["]
    for index, quote in enumerate(quotes):
        if index:
            pieces.append(b", ")
        pieces.append(quote.quoted_text)
    pieces.append(b"]")
    return pieces
