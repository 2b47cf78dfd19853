"""The prefixes of all regions, and which of them is local.

The table is the first of these: MARIN_MIRROR_PREFIXES (comma-separated URLs); the YAML file in MARIN_MIRROR_CONFIG;
`infra/mirror.yaml` of the project or `~/.config/marin/mirror.yaml`; the built-in buckets, if the local prefix is on
gs://. Only parsed files are cached: a changed environment takes effect immediately.
"""

import functools
import os
from dataclasses import dataclass
from pathlib import Path

from rigging.config_discovery import find_configs
from rigging.errors import InvalidRequest, NotFound, Unavailable
from rigging.filesystem.bucket_location import get_bucket_location, same_place
from rigging.filesystem.location import local_path, url_scheme
from rigging.filesystem.prefix import marin_prefix
from rigging.filesystem.region import REGION_TO_DATA_BUCKET, region_from_prefix
from rigging.text.yaml_files import yaml_errors

MIRROR_PREFIXES_ENV = "MARIN_MIRROR_PREFIXES"
MIRROR_CONFIG_ENV = "MARIN_MIRROR_CONFIG"
#: Where `mirror.yaml` is looked for; relative ones are below the project root.
CONFIG_DIRS = ("infra", "~/.config/marin")
_SAME_STORE = {"gcs": "gs", "s3a": "s3"}


@dataclass(frozen=True, slots=True)
class Prefix:
    """One region's storage root.

    Args:
        url: Normalized by `canonical_url`: a plain absolute path, or scheme://..., without a trailing slash.
        region: Its region; None if unknown.
    """

    url: str
    region: str | None


def canonical_url(url: str) -> str:
    """Return the canonical spelling of a prefix or full path: gs for gcs, s3 for s3a, a plain path for file://."""
    path = local_path(url)
    if path is not None:
        return path
    scheme, separator, rest = url.partition("://")
    if not separator:
        raise InvalidRequest(f"{url!r} is not a URL: expected scheme://path")
    scheme = url_scheme(url)
    return f"{_SAME_STORE.get(scheme, scheme)}://{rest.rstrip('/')}"


def local_prefix() -> Prefix:
    """Return the prefix of this process, where the mirror writes and looks first. MARIN_PREFIX is read at each call."""
    return _prefix(marin_prefix())


def mirror_prefixes() -> tuple[Prefix, ...]:
    """Return the prefixes of all regions, including the local one if it is in the table.

    Raises:
        InvalidRequest: The table cannot be read, or contains something that is not a prefix.
    """
    listed = os.environ.get(MIRROR_PREFIXES_ENV, "").strip()
    if listed:
        return tuple(_prefix(url.strip()) for url in listed.split(",") if url.strip())
    config = _config_file(os.environ.get(MIRROR_CONFIG_ENV, "").strip(), os.getcwd())
    if config is not None:
        return _read_config(config, config.stat().st_mtime_ns)
    if local_prefix().url.startswith("gs://"):
        return _BUILT_IN
    return ()


def other_prefixes() -> tuple[Prefix, ...]:
    """Return the prefixes to search for a path that the local one lacks, starting with those of the same continent."""
    local = local_prefix()
    others = [prefix for prefix in mirror_prefixes() if prefix.url != local.url]
    return tuple(sorted(others, key=lambda prefix: _continent(prefix.region) != _continent(local.region)))


def crosses_regions(source: Prefix, destination: Prefix) -> bool:
    """Return whether bytes between two prefixes are charged: yes, unless both are known to be in one region.

    If neither the name nor the table gives the location of a gs:// bucket, the store is asked once.
    """
    origin = _place(source)
    target = _place(destination) if origin is not None else None
    return origin is None or target is None or not same_place(origin, target)


@functools.lru_cache(maxsize=256)
def _prefix(url: str, region: str | None = None) -> Prefix:
    if url_scheme(url) == "mirror":
        raise InvalidRequest(f"prefix {url!r}: the mirror cannot have itself as a region; give the storage below it")
    canonical = canonical_url(url)
    return Prefix(canonical, region or region_from_prefix(canonical))


def _place(prefix: Prefix) -> str | None:
    if prefix.region is not None or not prefix.url.startswith("gs://"):
        return prefix.region
    bucket = prefix.url.removeprefix("gs://").partition("/")[0]
    try:
        return get_bucket_location(bucket)
    except (NotFound, Unavailable):
        return None  # what is not known is charged


def _continent(region: str | None) -> str | None:
    return region.partition("-")[0] if region else None


def _config_file(named: str, directory: str) -> Path | None:
    if not named:
        return find_configs(CONFIG_DIRS, start=directory).get("mirror")
    path = Path(directory) / os.path.expanduser(named)
    if not path.is_file():
        raise InvalidRequest(f"{MIRROR_CONFIG_ENV}={named!r}: there is no such file")
    return path


@functools.lru_cache(maxsize=16)
def _read_config(path: Path, modified: int) -> tuple[Prefix, ...]:
    del modified  # only part of the key, so that an edited file is read anew
    import yaml

    expected = "expected `prefixes:` with a mapping of region to URL, or a list of URLs"
    with yaml_errors(path):
        parsed = yaml.safe_load(path.read_text(encoding="utf-8"))
    prefixes = parsed.get("prefixes") if isinstance(parsed, dict) else None
    if isinstance(prefixes, dict):
        pairs = [(str(region), url) for region, url in prefixes.items()]
    elif isinstance(prefixes, list):
        pairs = [("", url) for url in prefixes]
    else:
        raise InvalidRequest(f"{path}: {expected}")
    for _, url in pairs:
        if not isinstance(url, str) or not url:
            raise InvalidRequest(f"{path}: {url!r} is not a URL; {expected}")
    return tuple(_prefix(url, region or None) for region, url in pairs)


_BUILT_IN = tuple(Prefix(f"gs://{bucket}", region) for region, bucket in REGION_TO_DATA_BUCKET.items())
