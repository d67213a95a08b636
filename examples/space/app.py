"""Type two sentences, and see which words find their translation before and after alignment."""

import os

import gradio

from hf_xalign.evaluation.similarity import word_similarity
from hf_xalign.modeling.loading import load_encoder
from hf_xalign.report.charts import render

ENCODERS = {
    "Before": load_encoder(os.environ.get("BASE", "builtin")),
    "After": load_encoder(os.environ.get("MODEL", "runs/fao_joint_builtin")),
}
EXAMPLES = [
    ["পাসওয়ার্ড পরিবর্তন করুন", "bn", "Change the password", "en"],
    ["Die Datei kann nicht geöffnet werden", "de", "The file cannot be opened", "en"],
    ["Không thể mở tệp", "vi", "The file cannot be opened", "en"],
]


def compare(source: str, source_lang: str, target: str, target_lang: str) -> str:
    """Return a table of cosines for each encoder."""
    found = {}
    for title, encoder in ENCODERS.items():
        found[title] = word_similarity(*encoder, source, target, source_lang=source_lang, target_lang=target_lang)
    return render("found.html", found=found)


sentences = [
    gradio.Textbox(label="Sentence", max_length=500),
    gradio.Textbox(label="its language, as a code"),
    gradio.Textbox(label="Translation", max_length=500),
    gradio.Textbox(label="its language, as a code", value="en"),
]
demo = gradio.Interface(
    compare,
    sentences,
    gradio.HTML(),
    examples=EXAMPLES,
    cache_examples=False,
    title="Words before and after alignment",
    flagging_mode="never",
)

if __name__ == "__main__":
    demo.launch()
