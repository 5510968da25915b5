"""The paper's Figure 2 and what belongs to it, recomputed from the numbers that it prints.

Kwon et al. 2023 print where the memory of four systems went (Figure 2), how many requests each
ran at a time (Figure 13) and how many blocks sharing saved (Figure 15). They do not print the
lengths of the requests, only their means. Here a trace is drawn that has the printed moments,
and it is replayed under the four policies with a queue that never empties.

The lengths have the least particular shape with those moments: a prompt and an output whose
densities are exponentials of ``x`` and ``log x`` (truncated gamma distributions), independent but
for the limit on their sum. Its four numbers come from four printed ones:

1. the mean prompt and 2. the mean output of those that arrive (section 6.1);
3. what a request in memory holds, and 4. what it will still get, on average over the three Orca
   systems (Figure 2's shares times the slots, by Figure 13's requests). A request is in memory
   for as many steps as it has outputs, so this average counts long ones more often.

So the sums of two rows of Figure 2 over three systems are put in. Their split between systems,
and the other rows, come out. Where nothing but means is printed (Alpaca), both shapes are
exponential.

==============  ================================================================================
``shapes``      :class:`Lengths`: a density of prompts and outputs, its moments, draws from it
``setting``     what the paper prints, what it leaves open, and lengths that agree with it
``comparison``  replays; shares and requests at a time beside the printed ones; vLLM's waste split
``spread``      the same with other shapes, other draws, and without what explains it
``decoding``    blocks saved by parallel sampling and beam search beside the printed ones
``reasons``     where each difference comes from
==============  ================================================================================
"""

from __future__ import annotations

from kvledger.replays.figure2.comparison import (
    batched,
    mean_running,
    mean_shares,
    replays,
    settled,
    shares,
    vllm_tokens_per_request,
    vllm_waste,
)
from kvledger.replays.figure2.length_densities import Lengths, fit_lengths
from kvledger.replays.figure2.sampling_savings import beam_assumption, reordered, sharing
from kvledger.replays.figure2.setting import (
    ORCAS,
    PARTS,
    SYSTEMS,
    Setting,
    alpaca,
    paper_setting,
    published,
    residents,
    sharegpt,
    sharegpt_means_only,
)
from kvledger.replays.figure2.spread import held_out, mechanisms, seeds, sensitivity

__all__ = [
    "ORCAS",
    "PARTS",
    "SYSTEMS",
    "Lengths",
    "Setting",
    "alpaca",
    "batched",
    "beam_assumption",
    "fit_lengths",
    "held_out",
    "mean_running",
    "mean_shares",
    "mechanisms",
    "paper_setting",
    "published",
    "reordered",
    "replays",
    "residents",
    "seeds",
    "sensitivity",
    "settled",
    "sharegpt",
    "sharegpt_means_only",
    "shares",
    "sharing",
    "vllm_tokens_per_request",
    "vllm_waste",
]
