"""The report: figures, tables, judged claims and one page, from run directories alone."""

from goru.lab.report import record
from goru.lab.report.write import Written, write

__all__ = ["Written", "record", "write"]
