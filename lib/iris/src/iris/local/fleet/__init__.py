"""The slices of a cluster file on this machine: one worker process for each host, started when jobs ask for them."""
