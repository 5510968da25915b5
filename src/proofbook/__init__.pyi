from collections.abc import Callable

from proofbook.formats import format_value as format_value
from proofbook.showing import figures_folder as figures_folder
from proofbook.showing.figures import figure as figure
from proofbook.showing.numbers import Claim as Claim
from proofbook.showing.numbers import ClaimMismatch as ClaimMismatch
from proofbook.showing.numbers import cite as cite
from proofbook.showing.numbers import claims_table as claims_table
from proofbook.showing.numbers import number as number
from proofbook.showing.numbers import read_claims as read_claims
from proofbook.showing.tables import data_digest as data_digest
from proofbook.showing.tables import table as table

def lazy_names(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]: ...
