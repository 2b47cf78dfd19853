"""Builds the documentation's site: `docs/build_site.py`."""
