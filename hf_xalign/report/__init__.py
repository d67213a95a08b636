"""Self-contained HTML pages about a run. They need no network and run no script."""

from __future__ import annotations

from hf_xalign.report.builder import render_report, write_report

__all__ = ["render_report", "write_report"]
