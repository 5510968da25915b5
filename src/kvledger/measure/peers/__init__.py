"""Other ways to attend through a page table, each used where it can be imported.

:data:`PEERS` holds one of each. A peer says why it is absent on a device
(:meth:`~kvledger.measure.peers.peer.Peer.absent`) and which steps it does not take
(:meth:`~kvledger.measure.peers.peer.Peer.refuses`); every peer is compared with
:func:`~kvledger.measure.reference.paged_decode_reference` before it is timed.
"""

from kvledger.measure.peers.cudnn import CudnnPaged
from kvledger.measure.peers.dense import GatherSdpa, Sdpa
from kvledger.measure.peers.flash import FlashInfer, FlashPaged
from kvledger.measure.peers.flex import FlexPaged
from kvledger.measure.peers.own import Triton
from kvledger.measure.peers.pallas import PallasPaged
from kvledger.measure.peers.peer import Peer, RefusedError, Step
from kvledger.measure.peers.peer_case import Case

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
