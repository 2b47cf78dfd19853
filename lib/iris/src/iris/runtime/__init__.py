"""What the program of a task calls at its start, under the module path that older programs import it from."""
