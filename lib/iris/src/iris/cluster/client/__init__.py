"""What a task knows of itself, under the module path that older programs import it from."""
