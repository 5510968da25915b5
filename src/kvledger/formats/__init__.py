"""The published trace formats, one module for tables and one for JSON.

The readers know files and lines; they know nothing of what a trace is used for, and answer with
:class:`~kvledger.formats.common.Requests`.
"""
