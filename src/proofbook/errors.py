"""The one error that unusable input raises, and how values stand in its message."""

from __future__ import annotations


class InputError(ValueError):
    """Input that cannot be used.

    The message names the value, where it stands (file, line or field) and what is accepted.
    """


def shown(value: object) -> str:
    """Return a value as an error message prints it: short, and a missing one said so.

    Examples
    --------
    >>> shown(None), shown(float("nan")), shown("x" * 100)[-5:]
    ('missing', 'missing (NaN)', 'xx...')
    """
    if value is None:
        return "missing"
    if isinstance(value, float) and value != value:
        return "missing (NaN)"
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        value = value.item()  # type: ignore[attr-defined]  # scalars print as plain numbers
    try:
        text = repr(value)
    except ValueError:
        text = "a number of more digits than Python prints"
    if text in ("<NA>", "NaT"):  # pandas' own missing values
        return "missing"
    return text if len(text) <= 60 else text[:57] + "..."
