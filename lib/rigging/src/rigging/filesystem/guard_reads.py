"""The charge for each kind of read, written once for the sync methods and their async twins.

Each function is a generator that yields calls to make on the unguarded filesystem and receives their results.
`run_sync` makes them directly; `run_async` awaits the async twin of each. Nothing here does I/O.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

from fsspec import AbstractFileSystem

from rigging.errors import Denied
from rigging.filesystem.bucket_location import BUCKET_LOCATIONS
from rigging.filesystem.budget import TransferBudget, current_budget
from rigging.filesystem.location import name_path
from rigging.filesystem.region_check import GCS_PROTOCOLS, bytes_cross, configured_region, guarded_region, is_paid_for


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a method of the unguarded filesystem, by its sync name."""

    name: str
    arguments: tuple[Any, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def recursive(self) -> bool:
        """Return whether directories stand for everything below them."""
        return bool(self.options.get("recursive"))


@dataclass(frozen=True, slots=True)
class RegionRules:
    """The locations of this process and of a store's buckets, and the decision whether a read crosses regions."""

    here: Callable[[], str | None] = guarded_region
    bytes_cross: Callable[[str | None, str], bool] = bytes_cross
    is_paid_for: Callable[[str, str], bool] = is_paid_for
    configured_region: Callable[[str, str], str | None] = configured_region


T = TypeVar("T")
Steps: TypeAlias = Generator[Call, Any, T]


def run_sync(fs: AbstractFileSystem, steps: Steps[T]) -> T:
    """Run `steps` with the sync methods of `fs`."""
    send: Callable[[Any], Call] = steps.send
    result: Any = None
    while True:
        try:
            call = send(result)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        try:
            result = getattr(fs, call.name)(*call.arguments, **call.options)
            send = steps.send
        except BaseException as error:  # handed to the steps, which clean up and raise it
            result, send = _named(error, fs, call), steps.throw


async def run_async(fs: AbstractFileSystem, steps: Steps[T]) -> T:
    """Run `steps` with the async methods of `fs`."""
    send: Callable[[Any], Call] = steps.send
    result: Any = None
    while True:
        try:
            call = send(result)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
        try:
            result = await getattr(fs, "_" + call.name)(*call.arguments, **call.options)
            send = steps.send
        except BaseException as error:  # as above; cancellation too
            result, send = _named(error, fs, call), steps.throw


def _named(error: BaseException, fs: AbstractFileSystem, call: Call) -> BaseException:
    """Return the error, adding the path if the store's client omits it ("Forbidden")."""
    if isinstance(error, OSError) and call.arguments and isinstance(call.arguments[0], str):
        name_path(error, url_on(fs, call.arguments[0]))
    return error


def url_on(fs: AbstractFileSystem, path: str) -> str:
    """Return a path of an unguarded filesystem as a URL, for messages."""
    protocol = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]
    return path if "://" in path else f"{protocol}://{path}"


REGION_RULES = RegionRules()


class ChargedReads:
    """The charged reads of one filesystem.

    Args:
        fs: The filesystem.
        budget: Returns the budget to charge.
        crosses: Decides for a bucket whether its bytes cross regions, instead of the comparison of regions.
        rules: The comparison of regions.
    """

    def __init__(
        self,
        fs: AbstractFileSystem,
        budget: Callable[[], TransferBudget] = current_budget,
        crosses: Callable[[str], bool] | None = None,
        rules: RegionRules = REGION_RULES,
    ) -> None:
        self._rules = rules
        self._budget = budget
        self._crosses = crosses
        self._strip: Callable[[Any], Any] = fs._strip_protocol
        self._protocol: str = fs.protocol if isinstance(fs.protocol, str) else fs.protocol[0]

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> Steps[bytes]:
        """Charge the range, and settle with the bytes that arrived."""
        call = Call("cat_file", (path,), {"start": start, "end": end, **options})
        crossing = yield from self.crossing([path])
        data: bytes
        if not crossing:
            data = yield call
            return data
        wanted = yield from self._range_bytes(path, start, end)
        with self._budget().reserve(wanted, self.url(path)) as reservation:
            data = yield call
            reservation.settle(len(data))
        return data

    def cat(self, path: Any, recursive: bool = False, on_error: str = "raise", **options: Any) -> Steps[Any]:
        """Charge every file that `path` stands for, and settle with the bytes that arrived."""
        call = Call("cat", (path,), {"recursive": recursive, "on_error": on_error, **options})
        crossing = yield from self._expanded(path, recursive, None, missing_ok=on_error != "raise")
        if not crossing:
            return (yield call)
        wanted = yield from self._whole_sizes(crossing, missing_ok=on_error != "raise")
        with self._budget().reserve(wanted, self._label(crossing)) as reservation:
            found = yield call
            reservation.settle(_moved(found, set(crossing)))
        return found

    def cat_ranges(self, paths: Sequence[str], starts: Any, ends: Any, **options: Any) -> Steps[Any]:
        """Charge the ranges, and settle with the bytes that arrived."""
        call = Call("cat_ranges", (paths, starts, ends), options)
        crossing = set((yield from self.crossing(paths)))
        if not crossing:
            return (yield call)
        which = [index for index, path in enumerate(paths) if self._strip(path) in crossing]
        wanted = 0
        for index in which:
            wanted += yield from self._range_bytes(paths[index], _at(starts, index), _at(ends, index))
        with self._budget().reserve(wanted, self._label([paths[index] for index in which])) as reservation:
            found = yield call
            reservation.settle(sum(len(found[index]) for index in which if isinstance(found[index], bytes)))
        return found

    def get(self, rpath: Any, lpath: Any, recursive: bool = False, **options: Any) -> Steps[Any]:
        """Charge the sizes of all files that `rpath` stands for."""
        return self._whole(Call("get", (rpath, lpath), {"recursive": recursive, **options}))

    def get_file(self, rpath: str, lpath: Any, *args: Any, **options: Any) -> Steps[Any]:
        """Charge the size of the file."""
        return self._whole(Call("get_file", (rpath, lpath, *args), options))

    def copy(self, path1: Any, path2: Any, recursive: bool = False, **options: Any) -> Steps[Any]:
        """Charge the bytes that move between regions, wherever this machine is."""
        return self._copied(Call("copy", (path1, path2), {"recursive": recursive, **options}))

    def cp_file(self, path1: str, path2: str, **options: Any) -> Steps[Any]:
        """Charge like `copy`."""
        return self._copied(Call("cp_file", (path1, path2), options))

    def mv(self, path1: Any, path2: Any, recursive: bool = False, **options: Any) -> Steps[Any]:
        """Charge like `copy`."""
        return self._copied(Call("mv", (path1, path2), {"recursive": recursive, **options}))

    def mv_file(self, path1: str, path2: str, **options: Any) -> Steps[Any]:
        """Charge like `copy`."""
        return self._copied(Call("mv_file", (path1, path2), options))

    def size_if_crossing(self, path: str, *, missing_ok: bool = False) -> Steps[int | None]:
        """Return the size to charge for all of `path`; None if it does not cross regions."""
        crossing = yield from self.crossing([path])
        if not crossing:
            return None
        return (yield from self._whole_sizes(crossing, missing_ok=missing_ok))

    def crossing(self, paths: Sequence[str]) -> Steps[list[str]]:
        """Return the stripped `paths` that lie in another region."""
        region = self._rules.here()
        if region is None and self._crosses is None:
            return []
        decided: dict[str, bool] = {}
        found = []
        for path in paths:
            bucket = self._bucket(path)
            if bucket not in decided:
                decided[bucket] = yield from self._is_charged(bucket, region)
            if decided[bucket]:
                found.append(self._strip(path))
        return found

    def _is_charged(self, bucket: str, region: str | None) -> Steps[bool]:
        if self._crosses is not None:
            crosses = self._crosses(bucket)
        else:
            location = (yield from self._location(bucket)) if bucket else region
            crosses = region is not None and self._rules.bytes_cross(location, region)
        return crosses and not self._rules.is_paid_for(self._bucket_url(bucket), region or "a region that is not known")

    def url(self, path: str) -> str:
        """Return `path` as a URL, for messages."""
        return f"{self._protocol}://{self._strip(path)}"

    def _whole(self, call: Call) -> Steps[Any]:
        crossing = yield from self._expanded(call.arguments[0], call.recursive, call.options.get("maxdepth"))
        return (yield from self._charged(crossing, call))

    def _copied(self, call: Call) -> Steps[Any]:
        path1, path2 = call.arguments
        region = self._rules.here()
        sources = {self._bucket(path) for path in self._listed(path1)}
        targets = {self._bucket(path) for path in self._listed(path2)}
        if (
            region is None
            or (sources == targets and len(sources) == 1)
            or self._rules.is_paid_for(self._label(sources), region)
        ):
            return (yield call)
        away = False
        for target in targets:
            place = yield from self._location(target)
            for source in sources - {target}:
                origin = yield from self._location(source)
                away = away or place is None or self._rules.bytes_cross(origin, place)
        crossing: list[str] = []
        if away:
            crossing = yield from self._files(path1, call.recursive, call.options.get("maxdepth"))
        return (yield from self._charged(crossing, call))

    def _charged(self, crossing: Sequence[str], call: Call) -> Steps[Any]:
        if not crossing:
            return (yield call)
        wanted = yield from self._whole_sizes(crossing)
        with self._budget().reserve(wanted, self._label(crossing)) as reservation:
            result = yield call
            reservation.settle(wanted)
        return result

    def _expanded(self, path: Any, recursive: bool, maxdepth: int | None, missing_ok: bool = False) -> Steps[list[str]]:
        """Return the files of another region that `path` stands for."""
        roots = self._listed(path)
        maybe: Sequence[str] = [root for root in roots if _has_magic(self._bucket(root))]
        if not maybe:
            maybe = yield from self.crossing(roots)
        if not maybe or (self._rules.here() is None and self._crosses is None):
            return []
        try:
            files = yield from self._files(path, recursive, maxdepth)
        except FileNotFoundError:
            if not missing_ok:
                raise
            return []
        return (yield from self.crossing(files))

    def _files(self, path: Any, recursive: bool, maxdepth: int | None) -> Steps[list[str]]:
        roots = self._listed(path)
        if not recursive and (isinstance(path, list | tuple) or not any(_has_magic(root) for root in roots)):
            return roots
        files: list[str] = yield Call("expand_path", (path,), {"recursive": recursive, "maxdepth": maxdepth})
        return files

    def _range_bytes(self, path: str, start: int | None, end: int | None) -> Steps[int]:
        if (start is None or start >= 0) and end is not None and end >= 0:
            return max(0, end - (start or 0))
        size = yield from self._whole_sizes([path])
        begin, stop, _ = slice(start, end).indices(size)
        return max(0, stop - begin)

    def _whole_sizes(self, paths: Sequence[str], *, missing_ok: bool = False) -> Steps[int]:
        """Return the sum of the sizes.

        Raises:
            Denied: A size is unknown, so the read cannot be charged.
        """
        if len(paths) > 1 and not missing_ok:
            try:
                sizes = yield Call("sizes", (list(paths),))
            except FileNotFoundError:
                raise
            except Exception as error:  # whatever the store's client raises: without sizes there is no read
                raise Denied(_unsized(self._label(paths), f"asking for it failed: {error!r}")) from error
            if all(isinstance(size, int) for size in sizes):
                return sum(sizes)
        total = 0
        for path in paths:
            total += yield from self._whole_size(path, missing_ok)
        return total

    def _whole_size(self, path: str, missing_ok: bool) -> Steps[int]:
        try:
            info = yield Call("info", (path,))
        except FileNotFoundError:
            if missing_ok:
                return 0
            raise
        except Exception as error:  # whatever the store's client raises: without a size there is no read
            raise Denied(_unsized(self.url(path), f"asking for it failed: {error!r}")) from error
        size = info.get("size")
        if info.get("type") == "directory":
            return 0
        if not isinstance(size, int) or size < 0:
            raise Denied(_unsized(self.url(path), f"the store says {size!r}"))
        return size

    def _location(self, bucket: str) -> Steps[str | None]:
        if self._protocol not in GCS_PROTOCOLS:
            return self._rules.configured_region(self._protocol, bucket)
        known = BUCKET_LOCATIONS.named(bucket)
        if known is not None or not bucket or BUCKET_LOCATIONS.is_known_unknown(bucket):
            return known
        try:
            info = yield Call("info", (bucket,))
        except Exception as error:  # whatever the store's client raises: unknown counts as elsewhere, and is logged
            return BUCKET_LOCATIONS.learn(bucket, None, error)
        return BUCKET_LOCATIONS.learn(bucket, info)

    def _listed(self, path: Any) -> list[str]:
        return [self._strip(each) for each in path] if isinstance(path, list | tuple | set) else [self._strip(path)]

    def _bucket(self, path: str) -> str:
        bucket: str = self._strip(path).lstrip("/").partition("/")[0]
        return bucket

    def _bucket_url(self, bucket: str) -> str:
        return f"{self._protocol}://{bucket}"

    def _label(self, paths: "Sequence[str] | set[str]") -> str:
        if not paths:
            return "nothing"
        first = self.url(min(paths))
        return first if len(paths) == 1 else f"{first} and {len(paths) - 1} more"


def _moved(found: Any, crossing: set[str]) -> int:
    if not isinstance(found, Mapping):
        return len(found)
    return sum(len(data) for path, data in found.items() if path in crossing and isinstance(data, bytes))


def _at(bounds: Any, index: int) -> int | None:
    bound: int | None = bounds[index] if isinstance(bounds, Sequence) else bounds
    return bound


def _has_magic(path: str) -> bool:
    return any(sign in path for sign in "*?[")


def _unsized(url: str, why: str) -> str:
    return (
        f"{url}: cannot read it: it is in another region and its size is unknown ({why}), so it cannot be charged to "
        "the transfer budget. Try again, or read a range with a start and an end"
    )
