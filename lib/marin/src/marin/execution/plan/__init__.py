"""The plan of a run, made before anything runs: steps selected, equal steps merged, collisions of paths refused."""
