"""Pieces of logs in the remote state directory."""

from rigging.filesystem import read_bytes_or_none, url_to_fs, write_bytes_atomic

FOLDER = "logs"


class RemotePieces:
    """Objects below `logs/` of a remote state directory: any fsspec URL. Calls may take as long as the storage does."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def put(self, name: str, data: bytes) -> None:
        """Write an object; it is there as a whole when this returns. Raises what the storage raises."""
        write_bytes_atomic(f"{self.url}/{name}", data, durable=True)

    def get(self, name: str) -> bytes | None:
        """The content of an object; None: there is none. Raises what the storage raises."""
        return read_bytes_or_none(f"{self.url}/{name}")

    def names(self) -> list[str]:
        """The names of all objects there are below `logs/`. Raises what the storage raises."""
        filesystem, root = url_to_fs(self.url)
        filesystem.invalidate_cache()
        try:
            found = filesystem.find(f"{root}/{FOLDER}")
        except FileNotFoundError:
            return []
        # Some storages give names with a leading slash, and some do not.
        above = root.strip("/") + "/"
        return [name.lstrip("/").removeprefix(above) for name in found]

    def remove(self, name: str) -> None:
        """Remove an object, if it is there. Raises what the storage raises."""
        if not name.startswith(FOLDER + "/") or ".." in name.split("/"):
            return
        filesystem, root = url_to_fs(self.url)
        try:
            filesystem.rm_file(f"{root}/{name}")
        except FileNotFoundError:
            return
