"""The steps of `experiments.quickstart`: from pages of HTML to a small language model and a report.

Each stage has a module. Functions import heavy packages on use, so that planning needs none of them, and a job only
those of its step.
"""
