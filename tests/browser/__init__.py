"""The finished pages in a real browser: what looks at them, and what is looked at.

Each check is a function that returns what is wrong with a visit. Every test file gives each of its
checks a page made to be wrong, so that a check which cannot fail does not pass.
"""
