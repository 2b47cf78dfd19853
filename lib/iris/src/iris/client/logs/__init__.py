"""The output of jobs: fetched, followed, printed."""
