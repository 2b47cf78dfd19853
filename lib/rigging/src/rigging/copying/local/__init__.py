"""Copies to local disks: part files that are published by rename.

Callers pass in the function that reserves the charge. Object stores are in `objects`.
"""
