"""Other ways to attend through a page table, each used where it can be imported.

:data:`PEERS` holds one of each. A peer says why it is absent on a device
(:meth:`~kvledger.attention.peers.base.Peer.absent`) and which steps it does not take
(:meth:`~kvledger.attention.peers.base.Peer.refuses`); every peer is compared with
:func:`~kvledger.attention.reference.paged_decode_reference` before it is timed.
"""

from kvledger.attention.peers.base import Peer, RefusedError, Step
from kvledger.attention.peers.case import Case
from kvledger.attention.peers.cudnn import CudnnPaged
from kvledger.attention.peers.dense import GatherSdpa, Sdpa
from kvledger.attention.peers.flash import FlashInfer, FlashPaged
from kvledger.attention.peers.flex import FlexPaged
from kvledger.attention.peers.own import Triton
from kvledger.attention.peers.pallas import PallasPaged

__all__ = ["PEERS", "Case", "Peer", "RefusedError", "Step"]

#: One of each, this package's kernel and the contiguous baseline first.
PEERS: tuple[Peer, ...] = (
    Triton(),
    Sdpa(),
    GatherSdpa(),
    FlexPaged(),
    FlashPaged(),
    FlashInfer(),
    CudnnPaged(),
    PallasPaged(),
)
