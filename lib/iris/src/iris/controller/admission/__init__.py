"""Validation of a submitted job before anything changes: spec, bundle, callable.

It only refuses. Nothing here changes state.
"""
