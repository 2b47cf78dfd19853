"""The projects of `marin init`: each module is a template that becomes `experiments/first.py`.

Each has `steps`, which the project's test runs with an in-process client. marin imports none of them.
"""
