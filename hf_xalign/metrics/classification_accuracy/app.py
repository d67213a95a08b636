"""Web page of the metric: `python app.py`, or a Space."""

from pathlib import Path

from hf_xalign.metrics.app import make_app

demo = make_app(Path(__file__).with_name("classification_accuracy.py"))

if __name__ == "__main__":
    demo.launch()
