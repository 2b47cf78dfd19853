"""Google's TPU and Compute APIs and metadata servers, as far as this workspace calls them (`GoogleServer`)."""
