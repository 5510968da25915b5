"""The commands by their names, each with an example that works.

Only the commands that a run needs are imported and built: the one that is named, or all of them
for the help, for completion, and for a name that is not known.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer

from kvledger import __version__


class Command(NamedTuple):
    """Where a command is, and the example that its help shows, word for word; a test runs it."""

    module: str
    example: str
    settings: dict[str, Any] = {}  # noqa: RUF012  never changed


COMMANDS: dict[str, Command] = {
    "account": Command("accounting", "kvledger account --lengths 5,9,17 --page-size 4"),
    "sweep": Command(
        "replays", "kvledger sweep azure_conv_2023 --page-size 1,16,64 --capacity 262144"
    ),
    "replay": Command(
        "replays", "kvledger replay azure_conv_2023 --model Llama-3.1-8B --kv-memory 16GiB"
    ),
    "models": Command(
        "modelling", "kvledger models Llama-3.1-8B Gemma-2-9B --dtype fp8 --kv-memory 60GiB"
    ),
    "decide": Command("deciding", "kvledger decide azure_conv_2023 --model Llama-3.1-8B"),
    "measure": Command(
        "tending",
        "kvledger measure --quick --device cpu",
        # Its options, --help among them, are those of the module that measures.
        {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    ),
    "report": Command(
        "reporting",
        "kvledger report azure_conv_2023 --model Llama-3.1-8B --kv-memory 60GiB --out report",
    ),
    "cite": Command("citing", "kvledger cite fig-slack-share --format plain"),
    "figure": Command("tracing", "kvledger figure fig-slack-share"),
    "diff": Command("comparing", "kvledger diff 0.1.0 ."),
    "derive": Command("tending", "kvledger derive --raw traces"),
}

EXIT_CODES = (
    "Exit status: 0 done; 1 an error of the program itself; 2 something given cannot be used, or "
    "the result cannot be written; 130 interrupted."
)


def make_app(names: Iterable[str] = COMMANDS) -> typer.Typer:
    """Return the application with these commands."""
    app = typer.Typer(
        name="kvledger",
        help="Where KV-cache memory goes, in exact numbers.",
        epilog=EXIT_CODES,
        rich_markup_mode="rich",
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_root)
    for name in names:
        command = COMMANDS[name]
        module = import_module(f"kvledger.cli.{command.module}")
        register = app.command(
            name, epilog=f"Example: {command.example}", context_settings=command.settings
        )
        register(getattr(module, name))
    return app


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kvledger {__version__}")
        raise typer.Exit


def _root(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Take the options that every command has."""
