"""Copies to local disks: part files, published by rename.

Each takes its charge from a function that it is given; object stores are `objects`.
"""
