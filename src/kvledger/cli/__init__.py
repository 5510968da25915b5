"""The command ``kvledger``: the package's computations on the reader's own lengths and traces.

Everything is computed before the first line is printed. What cannot be accounted for is one line
on stderr; ``--debug``, before the command or after it, shows the traceback as well. Only the
commands that a run needs are imported and built: the one that is named, or all of them for the
help, for completion, and for a name that is not known.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from kvledger.core.errors import InputError, LedgerError, shown
from proofbook.plaintext import json_text, printable

if TYPE_CHECKING:
    import typer

DONE, BROKEN, UNUSABLE, INTERRUPTED = 0, 1, 2, 130
_PIPED_WIDTH = 10_000  # nothing is folded where no terminal sets a width
EXIT_CODES = (
    "Exit status: 0 done; 1 an error of the program itself; 2 something given cannot be used, or "
    "the result cannot be written; 130 interrupted."
)


class Command(NamedTuple):
    """Where a command is, and the example that its help shows, word for word; a test runs it."""

    module: str
    example: str
    settings: dict[str, Any] = {}  # noqa: RUF012  never changed


COMMANDS: dict[str, Command] = {
    "account": Command("account_commands", "kvledger account --lengths 5,9,17 --page-size 4"),
    "sweep": Command(
        "replay_commands", "kvledger sweep azure_conv_2023 --page-size 1,16,64 --capacity 262144"
    ),
    "replay": Command(
        "replay_commands", "kvledger replay azure_conv_2023 --model Llama-3.1-8B --kv-memory 16GiB"
    ),
    "models": Command(
        "account_commands", "kvledger models Llama-3.1-8B Gemma-2-9B --dtype fp8 --kv-memory 60GiB"
    ),
    "decide": Command("workload_commands", "kvledger decide azure_conv_2023 --model Llama-3.1-8B"),
    "measure": Command(
        "data_commands",
        "kvledger measure --quick --device cpu",
        # Its options, --help among them, are those of the module that measures.
        {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    ),
    "report": Command(
        "workload_commands",
        "kvledger report azure_conv_2023 --model Llama-3.1-8B --kv-memory 60GiB --out report",
    ),
    "cite": Command("book_commands", "kvledger cite fig-slack-share --format plain"),
    "figure": Command("book_commands", "kvledger figure fig-slack-share"),
    "diff": Command("book_commands", "kvledger diff 0.1.0 ."),
    "derive": Command("data_commands", "kvledger derive --raw traces"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process when not given.

    Examples
    --------
    >>> main(["account", "--lengths", "5,9,17", "--page-size", "4", "--reserve", "oracle",
    ...       "--c", "1", "--test-sizes", "4"])
    lengths given: 3 requests, 31 tokens, mean 10.3, longest 17
    <BLANKLINE>
    policy          allocated slots  tail slack  reserved  unused  pages
    reserve oracle               31           0         0   0.00%      -
    pages of 4                   40           9         0  22.50%     10
    <BLANKLINE>
    c (token slots a page)  best page size   cost
    1                                    4  50.00
    <BLANKLINE>
    best page size  from c  to c  exactly to
    4                    0   any         any
    0
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    debug = _take_debug(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale may lack a letter of a name
            stream.reconfigure(errors="backslashreplace")
    try:
        with warnings.catch_warnings():
            if not debug:
                warnings.simplefilter("ignore")  # what libraries say of themselves
            return _run(arguments)
    except KeyboardInterrupt:
        return _say("interrupted", INTERRUPTED, debug)
    except InputError as error:
        # Some computations say in words what an interrupt left.
        interrupted = isinstance(error.__context__, KeyboardInterrupt)
        return _say(str(error), INTERRUPTED if interrupted else UNUSABLE, debug)
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return _say(f"{where}{error.strerror or error}", UNUSABLE, debug)
    except Exception as error:
        hint = "" if debug else " (--debug shows where)"
        text = f"internal error, {type(error).__name__}: {error}{hint}"
        return _say(text, BROKEN, debug)


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with these commands."""
    import typer

    def version(wanted: bool) -> None:
        if wanted:
            from kvledger import __version__

            typer.echo(f"kvledger {__version__}")
            raise typer.Exit

    flag = typer.Option(
        False, "--version", callback=version, is_eager=True, help="Show the version."
    )
    debugging = typer.Option(False, "--debug", help="Show the traceback of an error.")

    def root(debug: bool = debugging, version: bool = flag) -> None:
        pass

    app = typer.Typer(
        name="kvledger",
        help="Where KV-cache memory goes, in exact numbers.",
        epilog=EXIT_CODES,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name in names:
        command = COMMANDS[name]
        module = import_module(f"kvledger.cli.{command.module}")
        register = app.command(
            name, epilog=f"Example: {command.example}", context_settings=command.settings
        )
        register(getattr(module, name))
    return app


def _take_debug(arguments: list[str]) -> bool:
    """Take ``--debug`` out of the arguments, wherever it stands."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options = arguments[:end]
    arguments[:end] = [option for option in options if option != "--debug"]
    return "--debug" in options


def _run(arguments: list[str]) -> int:
    import typer

    completing = "_KVLEDGER_COMPLETE" in os.environ
    if not arguments and not completing:
        raise LedgerError(f"no command; accepted: {', '.join(COMMANDS)} (kvledger --help)")
    named = arguments[:1] if arguments[:1] and arguments[0] in COMMANDS else COMMANDS
    command = typer.main.get_command(make_app(named))
    try:
        result = command.main(args=arguments, prog_name="kvledger", standalone_mode=False)
    except typer.TyperException as error:
        text = error.format_message().replace("Value error, ", "").rstrip(".")
        errors = getattr(error.__cause__, "errors", None)
        if errors is not None:  # of a value, which not every message names
            given = shown(errors()[0]["input"])
            text += "" if given in text else f", not {given}"
        raise LedgerError(f"{text} (see --help)") from error
    if isinstance(result, str):
        return _print(result)
    if result == INTERRUPTED:
        raise KeyboardInterrupt
    return int(result or DONE)


def _print(text: str) -> int:
    try:
        print(text, flush=True)
    except BrokenPipeError:  # `kvledger account … | head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        # The interpreter would try again when it exits, and say so in lines of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise LedgerError(f"the output cannot be written: {error.strerror}") from error
    return DONE


def _say(text: str, status: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    print("kvledger: " + printable("; ".join(text.split("\n"))), file=sys.stderr)
    return status


# ---------------------------------------------------------------- what a command found


class Table(NamedTuple):
    """Rows of texts under headings; the first ``left`` columns are aligned to the left."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    left: int = 1


def answer(parts: Sequence[str | Table], document: Mapping[str, Any], as_json: bool) -> str:
    """Return lines and tables as text, or the document as JSON, without the last line's end.

    Names of files, models and columns come from outside: nothing in them is read as markup, and
    what would steer a terminal is written out.
    """
    if as_json:
        return json_text(document)
    from rich import box  # a tenth of a second that --json does not wait for
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    terminal = sys.stdout.isatty()
    console = Console(
        file=io.StringIO(),
        force_terminal=terminal,
        width=None if terminal else _PIPED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )
    for part in parts:
        if isinstance(part, str):
            console.print(Text(printable(part)), soft_wrap=True)
            continue
        shown = RichTable(box=box.SIMPLE_HEAD if terminal else None, pad_edge=False)
        for i, column in enumerate(part.columns):
            side = "left" if i < part.left else "right"
            shown.add_column(Text(printable(column)), justify=side, overflow="fold")  # type: ignore[arg-type]
        for row in part.rows:
            shown.add_row(*(Text(printable(cell)) for cell in row))
        console.print(shown)
    lines = console.file.getvalue().split("\n")  # type: ignore[attr-defined]
    return "\n".join(line.rstrip() for line in lines).rstrip()
