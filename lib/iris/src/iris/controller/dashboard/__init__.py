"""What pages in a browser need of the controller: news of changes, its own figures, the process that serves them."""
