"""The output of jobs: fetch, follow, print.

Here belongs reading. Where logs are stored is the controller's affair.
"""
