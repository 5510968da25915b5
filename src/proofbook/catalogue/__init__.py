"""Every number, figure and table of the book: what it says, where it stands, what made it.

The catalogue is read from what the notebooks show, so it can hold nothing that no page shows.
Pages, commands, comparisons of versions and the JSON files beside the pages all read this one.
"""

from proofbook.catalogue.catalogue_files import (
    FILES,
    entry_json,
    read_catalogue,
    to_json,
    write_catalogue,
)
from proofbook.catalogue.entries import (
    Catalogue,
    Entry,
    Kind,
    What,
    number_digest,
    permalink,
)
from proofbook.catalogue.notebook_entries import (
    Shown,
    catalogue_of,
    identity,
    stored_catalogue,
)

__all__ = [
    "FILES",
    "Catalogue",
    "Entry",
    "Kind",
    "Shown",
    "What",
    "catalogue_of",
    "entry_json",
    "identity",
    "number_digest",
    "permalink",
    "read_catalogue",
    "stored_catalogue",
    "to_json",
    "write_catalogue",
]
