"""Exact accounting: what lengths take in reserved memory, in pages, and with shared prefixes."""
