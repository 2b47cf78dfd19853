"""The prefixes of all regions as stores: their paths, entries and removals. Copies nothing.

Copying is in `rigging.copying`; `rigging.mirror` has the filesystem built on both.
"""
