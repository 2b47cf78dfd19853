"""Previews of files: the first part, bounded in memory.

There is one file per file type. Nothing here knows runs or steps.
"""
