"""The output of jobs: fetching, following, printing.

Only reading belongs here. The controller decides where logs are stored.
"""
