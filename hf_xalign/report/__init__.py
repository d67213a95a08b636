"""Self-contained HTML pages about a run or a pair of sentences. They need no network and run no script."""

from __future__ import annotations

from hf_xalign.report.builder import render_report, write_report
from hf_xalign.report.charts import render_similarity

__all__ = ["render_report", "render_similarity", "write_report"]
