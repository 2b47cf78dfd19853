"""The read-only half of the mirror: queries over all regions, without copying anything."""

import errno
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.utils import stringify_path

from rigging.prefixes.paths import PROTOCOL, relative_path
from rigging.prefixes.prefix_store import Info, PrefixStore, local_store
from rigging.prefixes.union import elsewhere, union_find, union_info, union_list

# fsspec takes strings, path objects, and lists of them.
MirrorPath = Any


def missing(path: str, reason: str = "no region has it") -> FileNotFoundError:
    """Return the error for a path that does not exist."""
    return FileNotFoundError(errno.ENOENT, reason, f"{PROTOCOL}://{path}")


class UnionFileSystem(AbstractFileSystem):  # type: ignore[misc]
    """All regions' prefixes as one filesystem, for queries. The local entry wins."""

    protocol = PROTOCOL
    root_marker = ""
    async_impl = False

    @classmethod
    def _strip_protocol(cls, path: MirrorPath) -> Any:
        if isinstance(path, list):
            return [relative_path(stringify_path(item)) for item in path]
        return relative_path(path if type(path) is str else stringify_path(path))

    @property
    def fsid(self) -> str:
        return PROTOCOL

    def info(self, path: MirrorPath, **kwargs: Any) -> Info:
        """Return the entry of a file or directory. Its `mirror_prefix` says where it was found."""
        del kwargs
        relative = self._strip_protocol(path)
        found = union_info(relative)
        if found is None:
            if not relative:
                return {"name": "", "size": 0, "type": "directory", "mirror_prefix": local_store().prefix.url}
            raise missing(relative)
        return found

    def exists(self, path: MirrorPath, **kwargs: Any) -> bool:
        """Return whether any region has the path. Unlike fsspec's own, this raises if a storage cannot answer."""
        del kwargs
        relative = self._strip_protocol(path)
        return not relative or union_info(relative) is not None

    def isfile(self, path: MirrorPath) -> bool:
        """Return whether the path is a file in the first region that has it."""
        found = union_info(self._strip_protocol(path))
        return found is not None and found["type"] == "file"

    def isdir(self, path: MirrorPath) -> bool:
        """Return whether the path is a directory in the first region that has it."""
        relative = self._strip_protocol(path)
        found = union_info(relative)
        return not relative if found is None else found["type"] == "directory"

    def ls(self, path: MirrorPath, detail: bool = True, **kwargs: Any) -> list[Any]:
        """List a directory in all regions."""
        del kwargs
        relative = self._strip_protocol(path)
        entries = union_list(relative)
        if entries is None:
            found = self.info(relative)
            entries = [found] if found["type"] != "directory" else []
        return entries if detail else [entry["name"] for entry in entries]

    def find(
        self, path: MirrorPath, maxdepth: int | None = None, withdirs: bool = False, detail: bool = False, **kwargs: Any
    ) -> Any:
        """Find all files below a directory in all regions. For a file, return the file itself."""
        relative = self._strip_protocol(path)
        if maxdepth is not None and maxdepth < 1:
            raise ValueError("maxdepth must be at least 1")
        found = union_find(relative, maxdepth=maxdepth, withdirs=withdirs, **kwargs)
        if not withdirs:
            found = {name: entry for name, entry in found.items() if entry["type"] != "directory"}
        return found if detail else list(found)

    def created(self, path: MirrorPath) -> Any:
        """Return the path's creation time in the first region that has it."""
        store, own = self._owner(path)
        return store.fs.created(own)

    def modified(self, path: MirrorPath) -> Any:
        """Return the path's modification time in the first region that has it."""
        store, own = self._owner(path)
        return store.fs.modified(own)

    def checksum(self, path: MirrorPath) -> Any:
        """Return the path's version mark in the first region that has it."""
        store, own = self._owner(path)
        return store.fs.checksum(own)

    def ukey(self, path: MirrorPath) -> Any:
        """Return the path's unique version mark in the first region that has it."""
        store, own = self._owner(path)
        return store.fs.ukey(own)

    def sign(self, path: MirrorPath, expiration: int = 100, **kwargs: Any) -> Any:
        """Return a signed URL to the file in its region."""
        store, own = self._owner(path)
        return store.fs.sign(own, expiration=expiration, **kwargs)

    def invalidate_cache(self, path: str | None = None) -> None:
        """Forget the listings that a region's filesystem caches."""
        store = local_store()
        store.fs.invalidate_cache(None if path is None else store.path(self._strip_protocol(path)))

    def _owner(self, path: MirrorPath) -> tuple[PrefixStore, str]:
        relative = self._strip_protocol(path)
        local = local_store()
        if local.info(relative) is not None:
            return local, local.path(relative)
        found = elsewhere(relative)
        if found is None:
            raise missing(relative)
        return found[0], found[0].path(relative)
