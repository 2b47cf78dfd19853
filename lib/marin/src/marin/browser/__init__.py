"""Experiment pages in a browser: runs below a storage root, their graphs, steps, logs and files. Read-only.

`pages.page_set` is the page set (`rigging.web.pages`), and `command.browse` serves only this set. Needs the extra
`browser`.
"""
