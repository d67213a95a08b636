"""Command-line arguments of the pre-training recipes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hf_xalign.checks import GIVEN, excludes, needs
from hf_xalign.data.sources import check_files, check_models, parse_named
from hf_xalign.errors import InputError
from hf_xalign.recipes.parts.arguments import option

if TYPE_CHECKING:
    from hf_xalign.trainers import AlignMLMConfig

# In the place of a folder or a Hub id, neither of which has this name.
NEW = "new"
# Fine-tuning reads it from the folder of the run, to derive the text of its task too.
DERIVED_FILE = "derived_language.json"
_MODEL, _TEXT, _DICTIONARY = "Encoder", "Text", "Dictionary"


@dataclass
class PretrainingArguments:
    """Text, encoder and dictionary of a pre-training run."""

    corpus: list[str] = option(
        _TEXT, "Text of each language, LANG=FILE (.txt, .jsonl, .parquet, .conllu; .gz too) or LANG=HUB_ID.", []
    )
    eval_corpus: list[str] = option(_TEXT, "Held-out text, written the same way.", [])
    target_lang: str = option(_TEXT, "The pivot language, that of a dictionary's first column.", "en")
    dataset_revision: str | None = option(_TEXT, "Branch, tag or commit of Hub datasets.", None)
    text_column: str = option(_TEXT, "Column with the text, or with its words, where the format has names.", "text")
    max_sentences: int | None = option(_TEXT, "Use the first n sentences of each corpus.", None, least=1)
    derive: list[str] = option(
        _TEXT,
        "Derive a second language from the corpus: syntax, inversion or permutation, transliteration.",
        [],
        rules=[
            needs(when="syntax", order_of=GIVEN),
            excludes("a derived language brings its own", dictionary=GIVEN),
            excludes("a derived language brings its own", test_dictionary=GIVEN),
        ],
    )
    shared: float = option(
        _TEXT,
        "Share of the vocabulary's pieces that are not transliterated.",
        0.0,
        least=0,
        most=1,
        rules=[needs("of the pieces that it changes", derive="transliteration")],
    )
    order_of: list[str] = option(
        _TEXT, "syntax: CoNLL-U files of the language with the word order.", [], rules=[needs(derive="syntax")]
    )
    pair_share: float = option(_TEXT, "xlm: ratio of rows of sentence pairs to rows of text.", 0.25)
    pair_halves: Literal["packed", "padded"] = option(
        _TEXT, "xlm: pad a row of pairs at its end, or each of its halves, as ALIGN-MLM.", "packed"
    )
    long_sentences: Literal["cut", "drop"] = option(
        _TEXT, "Continue a sentence longer than a row in the next row, or leave it out, as ALIGN-MLM.", "cut"
    )
    block_size: int = option(_TEXT, "Maximum number of tokens in a row.", 128, least=1)
    model_name_or_path: str = option(
        _MODEL,
        f"Encoder to start from: a Hub id, a folder, `builtin`, or `{NEW}` (random weights).",
        "builtin",
        rules=[needs("it has no vocabulary", NEW, vocabulary="train")],
    )
    model_revision: str = option(_MODEL, "Branch, tag or commit of a Hub model.", "main")
    layers: int | None = option(_MODEL, f"Keep the encoder's first n layers. {NEW}: number of layers, or 8.", None)
    hidden_size: int = option(_MODEL, f"{NEW}: width.", 512)
    attention_heads: int = option(_MODEL, f"{NEW}: attention heads.", 8)
    vocabulary: Literal["keep", "cut", "train"] = option(
        _MODEL,
        "The encoder's own, its pieces that are most frequent in the text, or one trained on the text.",
        "keep",
        rules=[needs("new pieces have no embeddings in another; or vocabulary=cut", "train", model_name_or_path=NEW)],
    )
    vocab_size: int = option(_MODEL, "cut, train: pieces, before those of a derived language.", 40_000)
    dictionary: str | None = option(
        _DICTIONARY, "LANG=FILE in MUSE's format, of the pivot and another language; derive makes its own.", None
    )
    test_dictionary: str | None = option(_DICTIONARY, "LANG=FILE: alignment is scored on its other entries.", None)
    dictionary_share: float = option(_DICTIONARY, "Share of the entries that is used in training.", 0.25)
    dictionary_seed: int | None = option(_DICTIONARY, "Seed of the share. Default: that of the run.", None, least=0)
    dry_run: bool = option("Run", "Show the text, the vocabulary and the entries; train nothing.", False)

    def entries_seed(self, args: AlignMLMConfig) -> int:
        """Return the seed that draws the dictionary's share."""
        return args.seed if self.dictionary_seed is None else self.dictionary_seed

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        check_models([self.model_name_or_path])
        check_files([*self.corpus, *self.eval_corpus, *filter(None, (self.dictionary, self.test_dictionary))])
        check_files(self.order_of)

    def check(self, args: AlignMLMConfig) -> None:
        """Check that the arguments go together, before anything is read."""
        if not self.corpus:
            raise InputError("corpus is missing: give text of each language, as in --corpus en=FILE de=FILE")
        languages: dict[str, list[str]] = {}
        for name in ("dictionary", "test_dictionary"):
            languages[name] = [parse_named(item, name)[1] for item in (getattr(self, name),) if item]
        for name in ("corpus", "eval_corpus"):
            languages[name] = [parse_named(item, name)[1] for item in getattr(self, name)]
            if twice := [language for language in languages[name] if languages[name].count(language) > 1]:
                raise InputError(f"{name}: {twice[0]} is named twice")
        if self.derive and len(self.corpus) > 1:
            raise InputError("derive makes the second language itself: name one corpus")
        if args.needs_entries and not self.derive and not self.dictionary:
            raise InputError(f"objective={args.objective} needs a dictionary: --dictionary LANG=FILE")
        for name, known in (("eval_corpus", "corpus"), ("dictionary", "corpus"), ("test_dictionary", "dictionary")):
            if unknown := [language for language in languages[name] if language not in languages[known]]:
                raise InputError(f"{name} of {unknown[0]}: {known} has none of that language")
        if args.objective == "xlm" and not self.derive:
            raise InputError("objective=xlm needs sentence pairs, which --derive makes")
        if self.target_lang in languages["dictionary"]:
            raise InputError(f"dictionary of {self.target_lang}: that is the pivot; name the language of column two")
