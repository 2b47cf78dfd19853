"""The prefixes of all regions as stores: their paths, entries and removals.

Copying is in `rigging.copying`; `rigging.mirror` has the filesystem built on both.
"""
