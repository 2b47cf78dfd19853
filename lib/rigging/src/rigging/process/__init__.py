"""This process and its children: calls, forks, kernel locks, signals, control groups.

Code that libraries need to run other code safely on one machine belongs here, not what is sent to other machines.
"""
