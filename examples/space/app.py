"""Type two sentences, and see which words find their translation before and after alignment."""

import os

import gradio

from hf_xalign.evaluation.similarity import word_similarity
from hf_xalign.explore.page import matrix
from hf_xalign.modeling.loading import load_encoder

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
    tables = ""
    for title, encoder in ENCODERS.items():
        found = word_similarity(*encoder, source, target, source_lang=source_lang, target_lang=target_lang)
        tables += f"<h3>{title}</h3>{matrix(found)}"
    return tables


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
