"""The controller's side of pages in a browser: news of changes, its own figures, the process that serves them."""
