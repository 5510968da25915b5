"""Read a ``config.json`` strictly, and look its fields up with one clear error each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Never

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import whole

FILE_NAME = "config.json"
ACCEPTED = "accepted: a Hugging Face config.json, or the folder that holds one"
_LARGEST_BYTES = 64 << 20
# Layer lists are made from this number, so a mistyped one must not fill the memory.
MOST_LAYERS = 1 << 16

MISSING = object()


def config_file(path: Path) -> Path:
    """Return the file that a path means: itself, or the ``config.json`` of a folder.

    Raises
    ------
    LedgerError
        If there is none.
    """
    try:
        folder, exists = path.is_dir(), path.exists()
        file = path / FILE_NAME if folder else path
        regular = file.is_file()
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror}); {ACCEPTED}") from None
    if folder and not regular:
        raise LedgerError(f"{path}: a folder without a {FILE_NAME}; {ACCEPTED}")
    if not exists:
        raise LedgerError(f"{path}: no such file or folder; {ACCEPTED}")
    if not regular:
        raise LedgerError(f"{path}: not a regular file; {ACCEPTED}")
    return file


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Nothing in it is run, and no key may stand twice.

    ``NaN`` and ``Infinity``, which Python writes, are read: published files have them in fields
    that do not matter here.

    Raises
    ------
    LedgerError
        If it cannot be read, is too large, no UTF-8, no JSON, nested too deeply, no object, or
        has a key twice.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
    except OSError as error:
        raise LedgerError(f"{path}: cannot be read ({error.strerror}); {ACCEPTED}") from None
    if len(content) > _LARGEST_BYTES:
        raise LedgerError(f"{path}: more than {_LARGEST_BYTES} bytes; {ACCEPTED}")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise LedgerError(f"{path}: the key {shown(key)} stands twice; once is accepted")
            result[key] = value
        return result

    try:
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=once)
    except UnicodeDecodeError as error:
        raise LedgerError(f"{path}: no UTF-8 at byte {error.start}; {ACCEPTED}") from None
    except json.JSONDecodeError as error:
        raise LedgerError(
            f"{path}: line {error.lineno}, column {error.colno}: no JSON ({error.msg}); {ACCEPTED}"
        ) from None
    except RecursionError:
        raise LedgerError(f"{path}: nested too deeply to be read; {ACCEPTED}") from None
    except LedgerError:
        raise
    except ValueError:  # Python reads no integer of more than some thousands of digits
        raise LedgerError(
            f"{path}: a number of more digits than Python reads; {ACCEPTED}"
        ) from None
    if not isinstance(value, dict):
        raise LedgerError(f"{path}: a JSON {_kind(value)}; {ACCEPTED}, which is a JSON object")
    return value


def _kind(value: object) -> str:
    names = {list: "list", str: "text", bool: "boolean", type(None): "null"}
    return names.get(type(value), "number")


class Fields:
    """The fields of a config, with the defaults that a file may leave out.

    Parameters
    ----------
    path : Path
        The file, for errors.
    values : mapping
        The object that describes the text model.
    prefix : str
        Where it stands in the file, such as ``"text_config."``; an error names it.
    defaults : mapping
        What the architecture's class takes for a field that the file leaves out.
    """

    def __init__(
        self, path: Path, values: Mapping[str, Any], prefix: str, defaults: Mapping[str, Any]
    ) -> None:
        self.path = path
        self.values = values
        self.prefix = prefix
        self.defaults = defaults
        self.taken: dict[str, Any] = {}

    def refuse(self, field: str, what: str) -> Never:
        """Raise the error of one field."""
        raise LedgerError(f"{self.path}: {self.prefix}{field} {what}")

    def missing(self, field: str) -> Never:
        """Raise the error of a field that is needed and not there."""
        self.refuse(field, f"is missing; a {self.model_type} config needs it")

    @property
    def model_type(self) -> str:
        """The architecture, as the file names it."""
        return str(self.values.get("model_type", ""))

    def get(self, *names: str) -> Any:
        """Return a field by the first of its names that the file has, else its class default.

        ``MISSING`` if there is neither; None if the file says null. Two names with two values are
        an error.
        """
        there = [name for name in names if name in self.values]
        if there:
            first = self.values[there[0]]
            for other in there[1:]:
                if self.values[other] != first or type(self.values[other]) is not type(first):
                    self.refuse(
                        other,
                        f"is {shown(self.values[other])} but {there[0]} is {shown(first)}; "
                        "they mean the same and must agree",
                    )
            return first
        for name in names:
            if name in self.defaults:
                self.taken[name] = self.defaults[name]
                return self.defaults[name]
        return MISSING

    def optional_whole(self, *names: str, minimum: int = 1) -> int | None:
        """Return a whole number; None if it is null or neither there nor a class default."""
        value = self.get(*names)
        if value is None or value is MISSING:
            return None
        return self.checked(value, self._name(names), minimum)

    def whole(self, *names: str, minimum: int = 1) -> int:
        """Return a whole number that must be there, or be a class default."""
        value = self.get(*names)
        if value is MISSING:
            self.missing(names[0])
        return self.checked(value, self._name(names), minimum)

    def checked(self, value: object, field: str, minimum: int = 1) -> int:
        """Return a JSON integer of at least ``minimum``; a float or boolean is none."""
        accepted = f"a whole number of at least {minimum} is accepted"
        if isinstance(value, float):  # whole() takes 4.0 for 4, as columns of a table need
            self.refuse(field, f"is {shown(value)}; {accepted}")
        return whole(
            value, f"{self.path}: {self.prefix}{field}", minimum=minimum, accepted=accepted
        )

    def flag(self, name: str) -> bool:
        """Return a true or false; false if null or neither there nor a class default."""
        value = self.get(name)
        if value is None or value is MISSING:
            return False
        if not isinstance(value, bool):
            self.refuse(name, f"is {shown(value)}; true or false is accepted")
        return value

    def layers(self, *names: str) -> int:
        """Return the number of layers."""
        number = self.whole(*(names or ("num_hidden_layers",)))
        if number > MOST_LAYERS:
            self.refuse(self._name(names), f"is {number}; at most {MOST_LAYERS} are accepted")
        return number

    def words(self, name: str, length: int | None, known: Iterable[str]) -> list[str] | None:
        """Return a list of known words, one a layer; None if null or not there."""
        value = self.get(name)
        if value is None or value is MISSING:
            return None
        known = tuple(known)
        if not isinstance(value, list):
            self.refuse(name, f"is {shown(value)}; a list of {', '.join(known)} is accepted")
        if length is not None and len(value) != length:
            self.refuse(name, f"has {len(value)} entries; one for each of {length} layers")
        for i, word in enumerate(value):
            if not isinstance(word, str) or word not in known:
                self.refuse(f"{name}[{i}]", f"is {shown(word)}; known are: {', '.join(known)}")
        return value

    def indices(self, name: str, *, layers: int, first: int = 0) -> set[int] | None:
        """Return a list of layer numbers as a set counted from 0; None if null or not there."""
        value = self.get(name)
        if value is None or value is MISSING:
            return None
        if not isinstance(value, list):
            self.refuse(name, f"is {shown(value)}; a list of layer numbers is accepted")
        result: set[int] = set()
        for i, number in enumerate(value):
            index = self.checked(number, f"{name}[{i}]", first) - first
            if index >= layers:
                self.refuse(f"{name}[{i}]", f"is {number}; there are {layers} layers")
            if index in result:
                self.refuse(f"{name}[{i}]", f"is {number}, which stands twice")
            result.add(index)
        return result

    def inner(self, name: str) -> Fields:
        """Return the fields of an object inside this one, which must be there."""
        value = self.get(name)
        if value is None or value is MISSING:
            self.missing(name)
        if not isinstance(value, dict):
            self.refuse(name, f"is {shown(value)}; an object is accepted")
        values = {"model_type": self.model_type, **value}
        return Fields(self.path, values, f"{self.prefix}{name}.", {})

    def _name(self, names: tuple[str, ...]) -> str:
        return next((n for n in names if n in self.values), names[0] if names else "")
