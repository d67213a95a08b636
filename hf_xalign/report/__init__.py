"""One HTML page about a run, or about two sentences, that opens without a network and runs no script."""

from __future__ import annotations

from hf_xalign.report.builder import render_report, write_report
from hf_xalign.report.page import render_similarity

__all__ = ["render_report", "render_similarity", "write_report"]
