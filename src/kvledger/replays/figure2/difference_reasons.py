"""Where each difference between a computed and a printed number comes from."""

from __future__ import annotations

from collections.abc import Mapping

_SPREAD = (
    "one mean of residents is put in for all; the printed ones differ between systems that serve "
    "the same requests"
)
_SHAPE = (
    "which power of two a length is rounded up to depends on the whole distribution; moments do "
    "not settle it"
)
SHARES: Mapping[tuple[str, str], str] = {
    ("orca_max", "token_states"): _SPREAD,
    ("orca_max", "reserved"): _SPREAD,
    ("orca_max", "internal"): _SPREAD,
    ("orca_max", "external_other"): "none but rounding: seven runs fit, whatever the lengths",
    ("orca_pow2", "token_states"): _SPREAD,
    ("orca_pow2", "reserved"): _SPREAD,
    ("orca_pow2", "internal"): _SHAPE,
    ("orca_pow2", "external_other"): _SHAPE,
    ("orca_oracle", "token_states"): _SPREAD,
    ("orca_oracle", "reserved"): _SPREAD,
    ("orca_oracle", "external_other"): _SHAPE,
    ("vllm", "token_states"): "within the scatter of draws",
}
_NO_QUEUE = (
    "the replay always has a queue; what was measured had fewer requests than memory holds, so it "
    "had none"
)
BATCHED: Mapping[tuple[str, str], str] = {
    ("sharegpt", "orca_max"): "none: seven runs fit, whatever the lengths",
    ("sharegpt", "orca_pow2"): _SPREAD,
    ("sharegpt", "orca_oracle"): _SPREAD,
    ("sharegpt", "vllm"): (
        "the printed number and the printed share ask for more tokens a request than any Orca's "
        "do, so they are not averages over the same steps; the replay keeps to the share"
    ),
    ("alpaca", "orca_max"): "none: seven runs fit, whatever the lengths",
    ("alpaca", "orca_pow2"): "only the means of Alpaca's lengths are printed",
    ("alpaca", "orca_oracle"): "only the means of Alpaca's lengths are printed",
    ("alpaca", "vllm"): _NO_QUEUE,
}
_MIX = (
    "of the same requests, six samples save five thirds of what two save; the printed shares do "
    "not, so they are of different requests"
)
_BEAMS = (
    "which beam goes on from which depends on the model; with parents drawn uniformly old "
    "branches die out sooner than they did there"
)
SHARING: Mapping[tuple[str, str], str] = {
    ("alpaca", "parallel"): (
        "only the means are printed, and what is saved depends on the spread of prompts and of "
        f"outputs too; besides, {_MIX}"
    ),
    ("alpaca", "beam"): _BEAMS,
    ("sharegpt", "parallel"): _MIX,
    ("sharegpt", "beam"): _BEAMS,
}
