"""The region where a step's job must run, and warnings about versioned values that name a region."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from rigging.errors import InvalidRequest, MarinError

logger = logging.getLogger(__name__)


class RegionConflict(InvalidRequest):
    """A step's inputs and output are in several regions, so its job would transfer data between regions wherever it
    runs."""


def infer_region(
    step_name: str, config: Any, output_path: str, location_of: Callable[[str], str] | None = None
) -> str | None:
    """Return the region common to a step's GCS paths.

    Buckets of unknown location are ignored. A multi-region matches all of its regions.

    Args:
        step_name: For messages.
        config: The step's instantiated config.
        output_path: The step's output path.
        location_of: Returns the location of a path's bucket. Defaults to `rigging.filesystem.get_bucket_location`.

    Returns:
        The region; None if no path names one.

    Raises:
        RegionConflict: The paths have no common region. The message lists them with their regions.
    """
    from rigging.filesystem import collect_gcs_paths, get_bucket_location
    from rigging.filesystem.bucket_location import same_place

    located: list[tuple[str, str, str]] = []
    paths = collect_gcs_paths(config)
    for key, path in [*paths, *collect_gcs_paths({"(output path)": output_path})]:
        location = _location(path, location_of or get_bucket_location)
        if location is not None:
            located.append((key, path, location))
    for index, (_, _, one) in enumerate(located):
        if not all(same_place(one, other) for _, _, other in located[index + 1 :]):
            listed = "".join(f"\n  {key}: {path} is in {location}" for key, path, location in located)
            raise RegionConflict(
                f"step {step_name!r}: its inputs and its output are in different regions, so there is no region for "
                f"its job:{listed}\nRead what is elsewhere through mirrored(...), which copies it once, or say where "
                "the job runs with ResourceConfig(regions=[...])"
            )
    # A job cannot be sent to a multi-region ("us") or a pair of regions ("nam4").
    return next((location for _, _, location in located if "-" in location), None)


def _location(path: str, location_of: Callable[[str], str]) -> str | None:
    try:
        return location_of(path)
    except MarinError as error:
        logger.warning("the region of %s is unknown, so the job may run anywhere: %s", path, error)
        return None


def warn_of_region_buckets(step_name: str, version_config: Mapping[str, Any]) -> None:
    """Log a warning for each versioned value that names a bucket of one region.

    Args:
        step_name: The step's name.
        version_config: The "config" of its version: dotted path to encoded value.
    """
    for field, value in version_config.items():
        for path, region in region_paths(value):
            relative = path.split("://", 1)[1].partition("/")[2]
            logger.warning(
                "step %r: field %r names the bucket of region %s in its version (%s), so the same pipeline starts anew "
                "in another region; write it relative to the prefix: versioned(%r) or InputName.hardcoded(%r), or "
                "mirrored(versioned(%r)) to have it copied",
                step_name,
                field,
                region,
                path,
                relative,
                relative,
                relative,
            )


def region_paths(value: Any) -> Iterator[tuple[str, str]]:
    """Yield the texts in a JSON value that name a bucket of one region, with that region."""
    if isinstance(value, str):
        # Cheap first: nearly every versioned text is no URL.
        if value.startswith(("gs://", "gcs://")):
            from rigging.filesystem import region_from_prefix

            region = region_from_prefix(value)
            if region is not None:
                yield value, region
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from region_paths(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from region_paths(item)
