"""What the paper prints, what it leaves open, and lengths that agree with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from kvledger.core import data_file
from kvledger.core.errors import LedgerError
from kvledger.models.known import kv_bytes_per_token
from kvledger.replays.figure2.length_densities import Family, Lengths, fit_lengths
from kvledger.replays.policies import Policy
from kvledger.replays.replay import Contiguous, Paged

_GIB = 2**30
ORCAS = ("orca_max", "orca_pow2", "orca_oracle")
"""The systems that reserve."""

SYSTEMS = (*ORCAS, "vllm")
"""The four systems, as ``data/paper_pagedattention.csv`` names them."""

PARTS = ("token_states", "reserved", "internal", "external_other")
"""The four shares that Figure 2 prints of a system."""


@dataclass(frozen=True, slots=True)
class Setting:
    """What the replays assume beyond lengths, each with where it comes from.

    Parameters
    ----------
    capacity_slots : int
        Slots of the pool. Table 1: OPT-13B, 12 GiB for the cache.
    maximum : int
        Longest sequence, in tokens. Section 6.1, for OPT.
    page_size : int
        Slots a page. Section 7.2: the default.
    watermark : float
        Share of the pages that an admission leaves free. Not in the paper; the default of its
        code (vllm-project/vllm, cacheflow/master/block_manager.py at commit 11bc010).
    fit : {"buddy", "first", "best"}
        How Orca's runs are placed. Section 6.1: by a buddy allocator. Its blocks have sizes of
        powers of two, up to the longest sequence (the same file on the branch of the Orca
        baseline, whose benchmark is stored at commit 00ce7dc).
    max_running : int
        Most requests at a time. vLLM's default; Orca's memory never lets so many in.
    requests : int
        Requests drawn. Chosen: few enough for seconds.
    record_every : int
        Steps from one recorded step to the next. Chosen: as above.
    """

    capacity_slots: int
    maximum: int = 2048
    page_size: int = 16
    watermark: float = 0.01
    fit: Literal["buddy", "first", "best"] = "buddy"
    max_running: int = 256
    requests: int = 8000
    record_every: int = 4

    def policies(self) -> dict[str, Policy]:
        """Return the policy of each system.

        Orca (Max) reserves the longest sequence. Orca (Pow2) reserves the prompt and the next
        power of two of the output (section 6.1), and never more than the longest sequence (the
        code of the baseline). Orca (Oracle) reserves what a request will hold. vLLM takes pages
        and computes again what it preempts.
        """
        return {
            "orca_max": Contiguous(self.maximum, self.fit),
            "orca_pow2": Contiguous("pow2", self.fit, pow2_of="output", maximum=self.maximum),
            "orca_oracle": Contiguous("oracle", self.fit),
            "vllm": Paged(self.page_size, watermark=self.watermark),
        }


def published() -> dict[str, float]:
    """Return the paper's numbers by id, as ``data/paper_pagedattention.csv`` has them.

    Examples
    --------
    >>> published()["fig2.vllm.token_states"]
    96.3
    """
    frame = pd.read_csv(data_file("paper_pagedattention.csv"))
    return dict(zip(frame["id"], frame["value"].astype(float), strict=True))


def paper_setting() -> Setting:
    """Return the setting of Figure 2: OPT-13B and the memory that Table 1 gives its cache.

    Examples
    --------
    >>> paper_setting().capacity_slots
    15728
    """
    memory = int(published()["table1.opt13b.kv_memory"] * _GIB)
    return Setting(capacity_slots=memory // kv_bytes_per_token("OPT-13B"))


def residents() -> pd.DataFrame:
    """Return what a request in memory holds and will get, by the printed shares and requests.

    Columns: system, now, later, final (tokens a request).

    Examples
    --------
    >>> residents().set_index("system")["final"].round().tolist()
    [757.0, 717.0, 732.0]
    """
    printed, slots = published(), paper_setting().capacity_slots
    rows = []
    for system in ORCAS:
        of_one = slots / 100 / printed[f"batched.sharegpt.{system}"]
        now = of_one * printed[f"fig2.{system}.token_states"]
        later = of_one * printed[f"fig2.{system}.reserved"]
        rows.append({"system": system, "now": now, "later": later, "final": now + later})
    return pd.DataFrame(rows)


def sharegpt(
    *,
    systems: Sequence[str] = ORCAS,
    prompt_family: Family = "gamma",
    output_family: Family = "gamma",
    cv_prompt: float | None = None,
    cv_output: float | None = None,
) -> Lengths:
    """Return lengths that have the printed moments of ShareGPT.

    Parameters
    ----------
    systems : sequence of str
        Orca systems whose printed residents are averaged.
    prompt_family, output_family : {"gamma", "lognormal"}
        Kind of density.
    cv_prompt, cv_output : float, optional
        Relative spreads to have instead of what the printed residents ask for; both or none.

    Returns
    -------
    Lengths

    Raises
    ------
    LedgerError
        For other systems, one spread without the other, or if no such lengths are found.

    Examples
    --------
    >>> lengths = sharegpt()
    >>> round(lengths.mean_prompt, 2), round(lengths.mean_output, 2)
    (161.31, 337.99)
    >>> round(lengths.resident_now + lengths.resident_later, 1)
    735.3
    """
    if (cv_prompt is None) != (cv_output is None):
        raise LedgerError(
            f"cv_prompt is {cv_prompt!r} and cv_output is {cv_output!r}; both are accepted, or none"
        )
    printed = published()
    targets = {
        "mean_prompt": printed["lengths.sharegpt.input_mean"],
        "mean_output": printed["lengths.sharegpt.output_mean"],
    }
    if cv_prompt is not None and cv_output is not None:
        targets |= {"cv_prompt": cv_prompt, "cv_output": cv_output}
    else:
        known = residents().set_index("system")
        if not systems or not set(systems) <= set(known.index):
            raise LedgerError(
                f"systems are {', '.join(systems) or 'none'}; accepted: some of {', '.join(ORCAS)}"
            )
        mean = known.loc[list(systems), ["now", "later"]].mean()
        targets |= {"resident_now": float(mean["now"]), "resident_later": float(mean["later"])}
    return fit_lengths(targets, prompt_family=prompt_family, output_family=output_family)


def sharegpt_means_only() -> Lengths:
    """Return exponential lengths with ShareGPT's printed means: the shape of no other knowledge.

    Examples
    --------
    >>> round(sharegpt_means_only().cv_output, 2)
    0.95
    """
    return _means_only("sharegpt")


def alpaca() -> Lengths:
    """Return exponential lengths with Alpaca's printed means; no other moment is printed.

    Examples
    --------
    >>> round(alpaca().mean_output, 2)
    58.45
    """
    return _means_only("alpaca")


def _means_only(dataset: str) -> Lengths:
    printed = published()
    return fit_lengths(
        {
            "mean_prompt": printed[f"lengths.{dataset}.input_mean"],
            "mean_output": printed[f"lengths.{dataset}.output_mean"],
        }
    )
