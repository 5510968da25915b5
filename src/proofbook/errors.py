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
    try:
        # NumPy's own scalars print as plain numbers.
        text = repr(value.item() if type(value).__module__ == "numpy" else value)  # type: ignore[attr-defined]
    except (AttributeError, ValueError) as error:
        if isinstance(error, ValueError) and isinstance(value, int):
            text = "a number of more digits than Python prints"
        else:
            text = repr(value)
    if text in ("<NA>", "NaT"):  # pandas' own missing values
        return "missing"
    return text if len(text) <= 60 else text[:57] + "..."
