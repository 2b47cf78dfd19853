"""What a set of steps comes to before anything runs: which are chosen, which are one, and which would collide."""
