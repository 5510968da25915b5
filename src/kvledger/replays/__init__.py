"""A trace run through an allocator over time, and the paper's Figure 2 recomputed so.

The function is ``kvledger.replay``; a room of that name would hide it.
"""
