"""Models: the known ones by name, a reader's own by its config, and the rules of engines."""
