"""The call of a step's function, here or as a job: submission, output, return value.

Only this folder submits jobs to fray.
"""
