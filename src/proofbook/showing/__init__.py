"""The outputs that a chapter may show, one module each."""
