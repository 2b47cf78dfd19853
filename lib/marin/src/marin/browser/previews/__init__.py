"""Previews of files: the first part, never more than fits in memory.

One file a file type; nothing here knows runs or steps.
"""
