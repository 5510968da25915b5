"""The report on one workload, as data: what its trace, model and memory come to."""

from kvledger.workload.reading import Workload, first_arrivals, read_workload

__all__ = ["Workload", "first_arrivals", "read_workload"]
