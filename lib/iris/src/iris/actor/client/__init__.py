"""The caller's end: clients, pools, and the calls of one process to one actor."""
