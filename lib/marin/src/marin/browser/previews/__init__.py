"""Previews of files for people: the first part, never more than fits in memory."""
