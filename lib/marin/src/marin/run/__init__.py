"""Tools for Ray clusters: submitting jobs to one (`python -m marin.run.ray_run`)."""
