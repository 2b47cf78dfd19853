"""The objects of a test GCS server: generations, preconditions, hashes, listings. No HTTP."""

import base64
import datetime
import email.utils
import hashlib
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Body = bytes | bytearray | memoryview

COMPOSE_LIMIT = 32
_HASH_BYTES = 2**20


class GcsError(Exception):
    """An answer other than success: an HTTP status and the API's reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class Conditions:
    """The preconditions of one request; None for no precondition."""

    generation: int | None = None
    not_generation: int | None = None
    metageneration: int | None = None
    not_metageneration: int | None = None

    @classmethod
    def from_query(cls, query: Mapping[str, str], source: str = "") -> "Conditions":
        """Read ifGenerationMatch and the three similar parameters; with source="Source", those for the source of a
        copy."""

        def number(name: str) -> int | None:
            text = query.get(f"if{source}{name}")
            if text is None:
                return None
            try:
                return int(text)
            except ValueError:
                raise GcsError(400, f"Invalid value for if{source}{name}: {text!r}") from None

        kinds = ("GenerationMatch", "GenerationNotMatch", "MetagenerationMatch", "MetagenerationNotMatch")
        return cls(*map(number, kinds))

    def check(self, found: "StoredObject | None", *, reading: bool = False) -> None:
        """Raise 412 if a condition does not hold (304 for a negative condition on a read)."""
        generation = found.generation if found else 0
        metageneration = found.metageneration if found else 0
        if self.generation not in (None, generation) or self.metageneration not in (None, metageneration):
            raise GcsError(412, "At least one of the pre-conditions you specified did not hold.")
        if self.not_generation == generation or (found and self.not_metageneration == metageneration):
            raise GcsError(304 if reading else 412, "At least one of the pre-conditions you specified did not hold.")


@dataclass(frozen=True, slots=True)
class StoredObject:
    name: str
    body: Body
    generation: int
    crc32c: str
    md5: str | None
    created: str
    metageneration: int = 1
    content_type: str = "application/octet-stream"
    metadata: Mapping[str, str] = field(default_factory=dict)
    components: int | None = None

    @property
    def last_modified(self) -> str:
        return email.utils.format_datetime(datetime.datetime.fromisoformat(self.created), usegmt=True)

    @property
    def etag(self) -> str:
        return base64.b64encode(f"{self.generation}/{self.metageneration}".encode()).decode()

    def resource(self, bucket: str, base_url: str) -> dict[str, Any]:
        resource: dict[str, Any] = {
            "kind": "storage#object",
            "id": f"{bucket}/{self.name}/{self.generation}",
            "selfLink": f"{base_url}/storage/v1/b/{bucket}/o/{self.name}",
            "name": self.name,
            "bucket": bucket,
            "generation": str(self.generation),
            "metageneration": str(self.metageneration),
            "contentType": self.content_type,
            "storageClass": "STANDARD",
            "size": str(len(self.body)),
            "crc32c": self.crc32c,
            "etag": self.etag,
            "timeCreated": self.created,
            "updated": self.created,
        }
        optional = {"md5Hash": self.md5, "metadata": dict(self.metadata) or None, "componentCount": self.components}
        resource.update({key: value for key, value in optional.items() if value is not None})
        return resource


@dataclass(frozen=True, slots=True)
class Listing:
    items: list[StoredObject]
    prefixes: list[str]
    next_page: str | None


class Bucket:
    """The objects of one bucket. Every method is atomic if a single thread calls them."""

    _generations = itertools.count(1_700_000_000_000_000)

    def __init__(self, name: str, location: str) -> None:
        self.name = name
        self.location = location
        self.created = _timestamp()
        self._objects: dict[str, StoredObject] = {}

    def resource(self) -> dict[str, Any]:
        return {
            "kind": "storage#bucket",
            "id": self.name,
            "name": self.name,
            "location": self.location.upper(),
            "locationType": "region",
            "storageClass": "STANDARD",
            "metageneration": "1",
            "timeCreated": self.created,
            "updated": self.created,
            "etag": "CAE=",
        }

    def __len__(self) -> int:
        return len(self._objects)

    def find(self, name: str) -> StoredObject | None:
        return self._objects.get(name)

    def get(self, name: str, conditions: Conditions, generation: str | None = None) -> StoredObject:
        """Return the live object. Raise 404 if no object has that name (and generation)."""
        found = self._objects.get(name)
        if found is None or (generation is not None and generation != str(found.generation)):
            raise GcsError(404, f"No such object: {self.name}/{name}")
        conditions.check(found, reading=True)
        return found

    def put(
        self,
        name: str,
        body: Body,
        conditions: Conditions,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        components: int | None = None,
    ) -> StoredObject:
        if not name or len(name.encode()) > 1024:
            raise GcsError(400, f"Invalid object name: {name!r}")
        conditions.check(self._objects.get(name))
        stored = StoredObject(
            name=name,
            body=body,
            generation=next(Bucket._generations),
            crc32c=_crc32c(body),
            # The service gives no MD5 of composed objects.
            md5=None if components else base64.b64encode(hashlib.md5(body, usedforsecurity=False).digest()).decode(),
            created=_timestamp(),
            content_type=content_type or "application/octet-stream",
            metadata=dict(metadata or {}),
            components=components,
        )
        self._objects[name] = stored
        return stored

    def copy_in(
        self, source: StoredObject, name: str, conditions: Conditions, change: Mapping[str, Any]
    ) -> StoredObject:
        """Make `name` a copy of `source`, with the changes in `change` (a JSON resource)."""
        conditions.check(self._objects.get(name))
        copied = replace(
            source,
            name=name,
            generation=next(Bucket._generations),
            metageneration=1,
            created=_timestamp(),
            content_type=change.get("contentType") or source.content_type,
            metadata=change.get("metadata") or source.metadata,
        )
        self._objects[name] = copied
        return copied

    def compose(
        self, name: str, sources: list[tuple[str, int | None]], conditions: Conditions, change: Mapping[str, Any]
    ) -> StoredObject:
        """Concatenate objects (name, expected generation or None) into `name`."""
        if not 1 <= len(sources) <= COMPOSE_LIMIT:
            raise GcsError(400, f"The number of source components provided ({len(sources)}) exceeds the maximum (32)")
        parts = [self.get(source, Conditions(generation=expected)) for source, expected in sources]
        return self.put(
            name, b"".join(part.body for part in parts), conditions, content_type=change.get("contentType"),
            metadata=change.get("metadata"), components=sum(part.components or 1 for part in parts),
        )  # fmt: skip

    def patch(self, name: str, change: Mapping[str, Any], conditions: Conditions) -> StoredObject:
        """Change content type and metadata (a None value removes a key)."""
        found = self._objects.get(name)
        if found is None:
            raise GcsError(404, f"No such object: {self.name}/{name}")
        conditions.check(found)
        merged = {**found.metadata, **(change.get("metadata") or {})}
        patched = replace(
            found,
            metageneration=found.metageneration + 1,
            content_type=change.get("contentType") or found.content_type,
            metadata={key: value for key, value in merged.items() if value is not None},
        )
        self._objects[name] = patched
        return patched

    def delete(self, name: str, conditions: Conditions, generation: str | None = None) -> None:
        found = self._objects.get(name)
        if found is None or (generation is not None and generation != str(found.generation)):
            raise GcsError(404, f"No such object: {self.name}/{name}")
        conditions.check(found)
        del self._objects[name]

    def list(self, query: Mapping[str, str]) -> Listing:
        """Return one page: prefix, delimiter, startOffset, endOffset, maxResults, pageToken."""
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        limit = min(int(query.get("maxResults") or 1000), 1000)
        start = max(query.get("startOffset", ""), query.get("pageToken", ""))
        end = query.get("endOffset")
        names = sorted(n for n in self._objects if n.startswith(prefix) and (end is None or n < end))
        items: list[StoredObject] = []
        prefixes: list[str] = []
        for entry, is_prefix in _rolled_up(names, prefix, delimiter):
            if entry < start:
                continue
            if len(items) + len(prefixes) == limit:
                return Listing(items, prefixes, entry)
            if is_prefix:
                prefixes.append(entry)
            else:
                items.append(self._objects[entry])
        return Listing(items, prefixes, None)


def _rolled_up(names: Iterable[str], prefix: str, delimiter: str) -> Iterable[tuple[str, bool]]:
    last = None
    for name in names:
        cut = name.find(delimiter, len(prefix)) if delimiter else -1
        if cut < 0:
            yield name, False
            continue
        rolled = name[: cut + len(delimiter)]
        if rolled != last:
            last = rolled
            yield rolled, True


def _crc32c(body: Body) -> str:
    import google_crc32c

    checksum = 0
    view = memoryview(body)
    for start in range(0, len(view), _HASH_BYTES):
        checksum = google_crc32c.extend(checksum, bytes(view[start : start + _HASH_BYTES]))
    return base64.b64encode(checksum.to_bytes(4, "big")).decode()


def _timestamp() -> str:
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
