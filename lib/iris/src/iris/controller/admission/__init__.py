"""Checks of a submitted job before anything changes: spec, bundle, callable.

Refusals only; nothing here changes state.
"""
