"""Web page of the metric: `python app.py`, or a Space."""

from hf_xalign.metrics.app import make_app

demo = make_app("bilingual_lexicon_induction")

if __name__ == "__main__":
    demo.launch()
