"""Try the metric on a page: `python app.py`, or as a Space."""

from pathlib import Path

from hf_xalign.metrics.app import make_app

demo = make_app(Path(__file__).with_name("sentence_retrieval.py"))

if __name__ == "__main__":
    demo.launch()
