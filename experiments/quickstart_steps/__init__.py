"""The steps of `experiments.quickstart`: from pages of HTML to a small language model and a report.

One module for each stage. The heavy packages are imported in the functions that use them, so that the script that plans
the steps needs none, and a job only those of its step.
"""
