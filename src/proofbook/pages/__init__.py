"""How the pages of the book look: one module for each thing that a reader meets on them."""
