"""Read a ``config.json`` strictly, and look its fields up with one clear error each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Never

from kvledger.core.errors import LedgerError, shown
from kvledger.core.lengths import whole

FILE_NAME = "config.json"
ACCEPTED = "accepted: a Hugging Face config.json, or the folder that holds one"
_LARGEST_BYTES = 64 << 20
# Layer lists are made from this number, so a mistyped one must not fill the memory.
MOST_LAYERS = 1 << 16


def config_file(path: Path) -> Path:
    """Return the file that a path means: itself, or the ``config.json`` of a folder."""
    wrong = "no such file or folder"
    try:
        file = path / FILE_NAME if path.is_dir() else path
        if file.is_file():
            return file
        if path.exists():
            wrong = "not a regular file" if file is path else f"a folder without a {FILE_NAME}"
    except OSError as error:
        wrong = f"cannot be read ({error.strerror})"
    raise LedgerError(f"{path}: {wrong}; {ACCEPTED}")


def read_object(path: Path) -> dict[str, Any]:
    """Return the JSON object of a file. Nothing in it is run, and no key may stand twice.

    ``NaN`` and ``Infinity``, which Python writes, are read: published files have them in fields
    that do not matter here.
    """

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key, value in pairs:
            if key in result:
                raise LedgerError(f"{path}: the key {shown(key)} stands twice; once is accepted")
            result[key] = value
        return result

    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST_BYTES + 1)
        if len(content) > _LARGEST_BYTES:
            raise LedgerError(f"{path}: more than {_LARGEST_BYTES} bytes; {ACCEPTED}")
        value = json.loads(content.decode("utf-8-sig"), object_pairs_hook=once)
    except LedgerError:
        raise
    except OSError as error:
        wrong = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError as error:
        wrong = f"no UTF-8 at byte {error.start}"
    except json.JSONDecodeError as error:
        wrong = f"line {error.lineno}, column {error.colno}: no JSON ({error.msg})"
    except RecursionError:
        wrong = "nested too deeply to be read"
    except ValueError:  # Python reads no integer of more than some thousands of digits
        wrong = "a number of more digits than Python reads"
    else:
        if isinstance(value, dict):
            return value
        kinds = {list: "list", str: "text", bool: "boolean", type(None): "null"}
        kind = kinds.get(type(value), "number")
        raise LedgerError(f"{path}: a JSON {kind}; {ACCEPTED}, which is a JSON object")
    raise LedgerError(f"{path}: {wrong}; {ACCEPTED}")


@dataclass
class Fields:
    """The fields of a config's text model, and what its class takes for those left out."""

    path: Path
    values: Mapping[str, Any]
    prefix: str = ""
    """Where the text model stands in the file, such as ``"text_config."``; an error names it."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    state_bytes: int | None = None
    """Bytes of an element of a recurrent state, if the reader named a data type."""
    taken: dict[str, Any] = field(default_factory=dict)
    """The defaults that were asked for."""

    def refuse(self, name: str, what: str) -> Never:
        """Raise the error of one field."""
        raise LedgerError(f"{self.path}: {self.prefix}{name} {what}")

    def missing(self, name: str) -> Never:
        """Raise the error of a field that is needed and not there."""
        self.refuse(name, f"is missing; a {self.model_type} config needs it")

    @property
    def model_type(self) -> str:
        """The architecture, as the file names it."""
        return str(self.values.get("model_type", ""))

    def get(self, *names: str) -> Any:
        """Return a field by the first of its names that the file has, else its class default.

        None if there is neither, or if the file says null. Two names with two values are an error.
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
        return None

    def optional_whole(self, *names: str, minimum: int = 1) -> int | None:
        """Return a whole number; None if it is null or neither there nor a class default."""
        value = self.get(*names)
        return None if value is None else self.checked(value, self._name(names), minimum)

    def whole(self, *names: str, minimum: int = 1) -> int:
        """Return a whole number that must be there, or be a class default."""
        value = self.get(*names)
        if value is None and not any(n in self.values or n in self.defaults for n in names):
            self.missing(names[0])
        return self.checked(value, self._name(names), minimum)

    def checked(self, value: object, name: str, minimum: int = 1) -> int:
        """Return a JSON integer of at least ``minimum``; a float or boolean is none."""
        if isinstance(value, float):  # whole() takes 4.0 for 4, as columns of a table need
            accepted = f"a whole number of at least {minimum} is accepted"
            self.refuse(name, f"is {shown(value)}; {accepted}")
        return whole(value, f"{self.path}: {self.prefix}{name}", minimum=minimum)

    def flag(self, name: str) -> bool:
        """Return a true or false; false if null or neither there nor a class default."""
        value = self.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, f"is {shown(value)}; true or false is accepted")
        return bool(value)

    def layers(self, *names: str) -> int:
        """Return the number of layers."""
        names = names or ("num_hidden_layers",)
        number = self.whole(*names)
        if number > MOST_LAYERS:
            self.refuse(self._name(names), f"is {number}; at most {MOST_LAYERS} are accepted")
        return number

    def words(self, name: str, length: int | None, known: Mapping[str, str]) -> list[str] | None:
        """Return what each of a list of known words means; None if null or not there."""
        value = self._list(name, f"a list of {', '.join(known)}")
        if value is None:
            return None
        if length is not None and len(value) != length:
            self.refuse(name, f"has {len(value)} entries; one for each of {length} layers")
        for i, word in enumerate(value):
            if not isinstance(word, str) or word not in known:
                self.refuse(f"{name}[{i}]", f"is {shown(word)}; known are: {', '.join(known)}")
        return [known[word] for word in value]

    def marks(self, name: str, layers: int) -> list[bool] | None:
        """Return a list of zeros and ones, one for each layer; None if null or not there."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != layers:
            self.refuse(name, f"is not a list of {layers} zeros and ones")
        for i, mark in enumerate(value):
            if self.checked(mark, f"{name}[{i}]", 0) > 1:
                self.refuse(f"{name}[{i}]", f"is {mark}; 0 or 1 is accepted")
        return [bool(mark) for mark in value]

    def indices(self, name: str, *, layers: int, first: int = 0) -> set[int]:
        """Return a list of layer numbers, which must be there, as a set counted from 0."""
        value = self._list(name, "a list of layer numbers")
        if value is None:
            self.missing(name)
        result: set[int] = set()
        for i, number in enumerate(value):
            index = self.checked(number, f"{name}[{i}]", first) - first
            if index >= layers:
                self.refuse(f"{name}[{i}]", f"is {number}; there are {layers} layers")
            if index in result:
                self.refuse(f"{name}[{i}]", f"is {number}, which stands twice")
            result.add(index)
        return result

    def _list(self, name: str, accepted: str) -> list[Any] | None:
        value = self.get(name)
        if value is not None and not isinstance(value, list):
            self.refuse(name, f"is {shown(value)}; {accepted} is accepted")
        return value

    def inner(self, name: str) -> Fields:
        """Return the fields of an object inside this one, which must be there."""
        value = self.get(name)
        if value is None:
            self.missing(name)
        if not isinstance(value, dict):
            self.refuse(name, f"is {shown(value)}; an object is accepted")
        return Fields(self.path, {"model_type": self.model_type, **value}, f"{self.prefix}{name}.")

    def _name(self, names: tuple[str, ...]) -> str:
        return next((n for n in names if n in self.values), names[0])
