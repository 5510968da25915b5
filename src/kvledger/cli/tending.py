"""``kvledger derive`` and ``kvledger measure``: what fills ``data/``."""

from __future__ import annotations

from typing import Annotated

import typer

from kvledger.cli.answer import Answer


def measure(context: typer.Context) -> int:
    """Measure on this machine what reading through a page table costs, and write a record.

    Its options are those of python -m kvledger.attention.measure.
    """
    # The one command that imports torch.
    from kvledger.attention.measure import main

    return main(context.args)


def derive(
    raw: Annotated[str, typer.Option("--raw", metavar="DIR", help="Folder with the raw traces.")],
    out: Annotated[
        str | None,
        typer.Option(
            "--out", metavar="DIR", help="Folder to write to.", show_default="data/ of the checkout"
        ),
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
    from kvledger.derive import derive_tables

    written = derive_tables(raw, out, update_manifest=update_manifest)
    return Answer([f"wrote {path}" for path in written], {}).text(as_json=False)
