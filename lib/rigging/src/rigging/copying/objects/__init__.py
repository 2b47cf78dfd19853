"""Copies into object stores and other filesystems."""
