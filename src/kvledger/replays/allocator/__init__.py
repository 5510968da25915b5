"""Allocators: pools of pages and of contiguous slots, one operation at a time.

These are the reference: plain Python, meant to be read, with a ``check_integrity()`` that proves
every slot to be in exactly one place. A whole trace runs through a compiled engine, which is held
to them.

================  ==============================================================================
``inputs``        checks of what is handed to a page pool
``freequeue``     free pages in the order in which they are handed out
``pagekeys``      what makes two complete pages the same page
``pagestore``     pages as such: holders, free ones, cached ones, eviction
``pagetable``     one sequence's pages
``pages``         :class:`PagePool`: sequences are admitted, grow, fork, copy on write, and leave
``contiguous``    :class:`ContiguousPool`: first fit, best fit and buddies, with their holes
``decoding``      parallel sampling and beam search on a page pool: the pages they save
================  ==============================================================================
"""

from kvledger.replays.allocator.contiguous_pool import ContiguousPool, Hole
from kvledger.replays.allocator.free_queue import FreeQueue
from kvledger.replays.allocator.page_keys import KeyChains, PageKey
from kvledger.replays.allocator.page_pool import PagePool
from kvledger.replays.allocator.page_store import PageStore, PoolCounts
from kvledger.replays.allocator.page_table import Admission, Growth, PageTable
from kvledger.replays.allocator.sampling import DecodingPages, beam_search, parallel_sampling

__all__ = [
    "Admission",
    "ContiguousPool",
    "DecodingPages",
    "FreeQueue",
    "Growth",
    "Hole",
    "KeyChains",
    "PageKey",
    "PagePool",
    "PageStore",
    "PageTable",
    "PoolCounts",
    "beam_search",
    "parallel_sampling",
]
