"""The words of iris as plain immutable types; pure, and imported by everything else."""
