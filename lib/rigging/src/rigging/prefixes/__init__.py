"""The prefixes of all regions as stores: paths below them, what is there, what was removed. Copies nothing.

Here belongs what looks into a prefix; copying is `rigging.copying`, the filesystem over both `rigging.mirror`.
"""
