"""``kvledger derive`` and ``kvledger measure``: what fills ``data/``.

They stand apart because ``measure`` is the one command that may import torch.
"""

from __future__ import annotations

import argparse
from typing import Annotated, Never

import typer

from kvledger.cli import COMMANDS, answer
from kvledger.cli import options as opt
from kvledger.core.errors import LedgerError


def measure(context: typer.Context) -> str:
    """Measure on this machine what reading through a page table costs, and write a record."""
    from kvledger.measure.__main__ import add_arguments, run_command

    parser = _Parser(
        prog="kvledger measure",
        description=measure.__doc__,
        epilog=f"Example: {COMMANDS['measure'].example}",
    )
    add_arguments(parser)
    return answer(list(run_command(parser.parse_args(context.args))), {}, as_json=False)


class _Parser(argparse.ArgumentParser):
    """The parser of the module that measures, whose errors are those of every command."""

    def error(self, message: str) -> Never:
        raise LedgerError(f"{message} (see --help)")


def derive(
    raw: Annotated[str, opt.option("--raw", "DIR", "Folder with the raw traces.")],
    out: Annotated[
        str | None, opt.option("--out", "DIR", "Folder to write to.", "data/ of the checkout")
    ] = None,
    update_manifest: Annotated[
        bool,
        typer.Option(
            "--update-manifest",
            help="Accept tables that differ from data/manifest.toml, and write a new manifest.",
        ),
    ] = False,
) -> str:
    """Make the tables of data/traces from the raw traces again."""
    from kvledger.traces.derivation import derive_tables

    written = derive_tables(raw, out, update_manifest=update_manifest)
    return answer([f"wrote {path}" for path in written], {}, as_json=False)
