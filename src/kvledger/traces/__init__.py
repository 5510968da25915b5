"""Request traces: the published ones, and a reader's own in any published form."""
