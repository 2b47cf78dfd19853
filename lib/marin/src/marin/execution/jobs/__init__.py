"""Calls of steps' functions, in this process or as jobs: submission, output, return value.

Only this folder submits jobs to fray.
"""
