"""Blobs, and the room on the disk that all files share."""
