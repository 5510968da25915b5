"""A report on a reader's own workload: the chapter ``your_workload``, run on their trace.

What it leaves is a page, its notebook, figures, tables and numbers, and it holds counts and sums
only: no row of the trace, no prompt, no id, and of its path the base name alone.
"""

from kvledger.report.deployment import Settings, open_deployment
from kvledger.report.report_folder import write_report

__all__ = ["Settings", "open_deployment", "write_report"]
