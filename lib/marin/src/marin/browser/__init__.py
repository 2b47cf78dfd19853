"""Experiment pages: runs below a storage root, their graphs, steps, logs and files, in a browser. Read-only.

`pages.page_set` is the set of pages (`rigging.web.pages`), `command.browse` serves it alone. Needs the extra `browser`.
"""
