"""Validation of a submitted job before anything changes: spec, bundle, callable.

Nothing here changes state.
"""
