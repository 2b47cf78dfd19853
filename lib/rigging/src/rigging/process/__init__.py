"""This process and its children: calls, forks, kernel locks, signals, control groups.

Only code for one machine belongs here, nothing that is sent to other machines.
"""
