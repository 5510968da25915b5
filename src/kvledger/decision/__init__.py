"""All the costs of a page size, combined, and the answer in words."""
