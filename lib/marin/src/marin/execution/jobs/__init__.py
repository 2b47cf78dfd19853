"""Calls of steps' functions, here or as jobs: submission, output, return value.

Only this folder submits jobs to fray.
"""
