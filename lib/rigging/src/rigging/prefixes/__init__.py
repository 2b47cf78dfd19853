"""The prefixes of all regions as stores: their paths, entries and removals. Copies nothing.

Code that looks into a prefix belongs here. Copying is in `rigging.copying`, the filesystem on top of both in
`rigging.mirror`.
"""
