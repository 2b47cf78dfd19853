"""Sizes as people write them: "1GB", "512MiB", 2048."""

from rigging.quantities import format_size, parse_size

__all__ = ["format_size", "parse_size", "short_size"]


def short_size(size_bytes: int) -> str:
    """A size in whole units as people say it, e.g. "48 KB" (units are powers of 1024)."""
    for unit, size in (("GB", 2**30), ("MB", 2**20), ("KB", 2**10)):
        if size_bytes >= size:
            return f"{size_bytes / size:.1f} {unit}" if size_bytes < 10 * size else f"{size_bytes / size:.0f} {unit}"
    return f"{size_bytes} bytes"
