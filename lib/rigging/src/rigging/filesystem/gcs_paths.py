"""`gs://` paths in configs: find them, and check that they are in the region of the work."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from rigging.errors import InvalidRequest, MarinError
from rigging.filesystem.bucket_location import get_bucket_location, same_place
from rigging.filesystem.region import data_bucket, marin_region

logger = logging.getLogger(__name__)


#: Keys of training configs that hold the URLs of sharded training data.
READ_FROM_ANYWHERE = ("train_urls", "validation_urls")


def split_gcs_path(url: str) -> tuple[str, Path]:
    """Split `gs://bucket/a/b` into ("bucket", Path("a/b")); the path of a bare bucket is Path(".").

    Raises:
        InvalidRequest: `url` does not have that form.
    """
    scheme, _, rest = url.partition("://")
    bucket, _, key = rest.partition("/")
    if scheme != "gs" or not bucket:
        raise InvalidRequest(f"{url!r} is not a GCS path: expected gs://BUCKET/path")
    return bucket, Path(key)


def collect_gcs_paths(
    obj: object, *, path_prefix: str | None = None, skip_if_prefix_contains: Sequence[str] | None = None
) -> list[tuple[str, str]]:
    """Find every `gs://` path in a config of dataclasses, mappings, sequences, sets and paths.

    Args:
        obj: The config. It may contain itself.
        path_prefix: Prefix of each key.
        skip_if_prefix_contains: Skip paths whose key contains one of these texts.

    Returns:
        (key, path) pairs in traversal order. A key is dotted, with list items as `[i]`, e.g. "data.files[0]".
    """
    found = _walk(obj, path_prefix or "", ())
    return [(key, path) for key, path in found if not any(text in key for text in skip_if_prefix_contains or ())]


def check_path_in_region(key: str, path: str, region: str, local_ok: bool = False) -> None:
    """Check that `path` is in `region`. A path with an unknown location passes with a warning.

    Args:
        key: The path's key in the config, for the message.
        path: A gs:// path.
        region: The region of the work.
        local_ok: Accept paths that are not on GCS.

    Raises:
        InvalidRequest: The path is in another region, or not on GCS.
    """
    complaint = _complaint(key, path, region, local_ok)
    if complaint is not None:
        raise InvalidRequest(f"{complaint}. {_remedy(region)}")


def check_gcs_paths_same_region(
    obj: object,
    *,
    local_ok: bool = True,
    region: str | None = None,
    skip_if_prefix_contains: Sequence[str] | None = READ_FROM_ANYWHERE,
    region_getter: Callable[[], str | None] | None = None,
    path_checker: Callable[[str, str, str, bool], object] | None = None,
) -> None:
    """Check that every `gs://` path in a config is in the region of the work.

    Args:
        obj: The config, as in `collect_gcs_paths`.
        local_ok: Accept an unknown region: then no path counts as cross-region.
        region: The region of the work, instead of this process's.
        skip_if_prefix_contains: As in `collect_gcs_paths`. By default it skips URLs of training data, which is read
            piecemeal.
        region_getter: Returns the region if `region` is not given, instead of `marin_region`.
        path_checker: Called for each path like `check_path_in_region`, instead of it. It raises if the path is not
            acceptable.

    Raises:
        InvalidRequest: Some paths are in another region. The message lists all of them and says how to fix it.
    """
    here = region or (region_getter or marin_region)()
    if here is None:
        if local_ok:
            return
        raise InvalidRequest("this machine's region is unknown: set MARIN_PREFIX, or give `region`")
    paths = collect_gcs_paths(obj, skip_if_prefix_contains=skip_if_prefix_contains)
    if path_checker is not None:
        for key, path in paths:
            path_checker(key, path, here, local_ok)
        return
    found = (_complaint(key, path, here, False) for key, path in paths)
    complaints = [complaint for complaint in found if complaint is not None]
    if complaints:
        listed = "".join(f"\n  {complaint}" for complaint in complaints)
        raise InvalidRequest(f"paths outside of {here}, where the work runs:{listed}\n{_remedy(here)}")


def _complaint(key: str, path: str, region: str, local_ok: bool) -> str | None:
    if not path.startswith("gs://"):
        return None if local_ok else f"{key}: {path!r} is not a gs:// path"
    try:
        location = get_bucket_location(path)
    except MarinError as error:
        # The guard still charges what is read from there.
        logger.warning("%s: cannot check the region of %s: %s", key, path, error)
        return None
    return None if same_place(location, region) else f"{key}: {path} is in {location}, not in {region}"


def _remedy(region: str) -> str:
    return (
        f"Use a copy in this region (gs://{data_bucket(region)}/...), read it as mirror://path, which copies it once "
        "within the transfer budget, or run in the data's region"
    )


def _walk(obj: object, key: str, around: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(obj, str):
        if obj.startswith("gs://"):
            yield key, obj
    elif isinstance(obj, PurePath):
        # pathlib folds "gs://b" to "gs:/b".
        text = str(obj)
        if text.startswith("gs:/"):
            yield key, "gs://" + text.removeprefix("gs:/")
    elif id(obj) not in around:
        for name, child in _children(obj):
            joint = "." if key and not name.startswith("[") else ""
            yield from _walk(child, f"{key}{joint}{name}", (*around, id(obj)))


def _children(obj: object) -> Iterator[tuple[str, object]]:
    if dataclasses.is_dataclass(obj) and not isinstance(obj, type):
        for field in dataclasses.fields(obj):
            yield field.name, getattr(obj, field.name)
    elif isinstance(obj, Mapping):
        for name, value in obj.items():
            yield str(name), value
    elif isinstance(obj, list | tuple):
        for index, value in enumerate(obj):
            yield f"[{index}]", value
    elif isinstance(obj, set | frozenset):
        for index, value in enumerate(sorted(obj, key=str)):
            yield f"[{index}]", value
