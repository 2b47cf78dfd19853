"""The former place of `rigging.mirror`; use `rigging.filesystem.MirrorFileSystem`."""
