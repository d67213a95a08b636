"""What the pre-training recipes take on their command line."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hf_xalign.data.parallel import parse_source
from hf_xalign.errors import InputError
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig

NEW = "new"
_MODEL, _TEXT, _DICTIONARY = "Encoder", "Text", "Dictionary"


@dataclass
class PretrainingArguments:
    """The text, the encoder and the dictionary of a run."""

    corpus: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Text of each language, LANG=FILE (.txt with a sentence a line, .jsonl, both also .gz, .parquet, "
            "or .conllu) or LANG=HUB_ID.",
            "group": _TEXT,
        },
    )
    eval_corpus: list[str] = field(
        default_factory=list, metadata={"help": "Held-out text, written the same way.", "group": _TEXT}
    )
    text_column: str = field(
        default="text",
        metadata={"help": "Column with the text, or with its words, where the format has names.", "group": _TEXT},
    )
    max_sentences: int | None = field(
        default=None, metadata={"help": "Use the first n sentences of each corpus.", "group": _TEXT}
    )
    max_eval_sentences: int | None = field(
        default=None, metadata={"help": "Use the first n held-out sentences of each.", "group": _TEXT}
    )
    derive: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Make a second language out of the corpus: syntax, inversion or permutation, transliteration, in "
            "that order.",
            "group": _TEXT,
        },
    )
    shared: float = field(
        default=0.0, metadata={"help": "Share of the words that are not transliterated.", "group": _TEXT}
    )
    order_of: list[str] = field(
        default_factory=list,
        metadata={"help": "syntax: CoNLL-U files of the language whose word order is taken.", "group": _TEXT},
    )
    parallel: list[str] = field(
        default_factory=list,
        metadata={
            "help": "xlm: sentence pairs, as train_data of recipes/fao.py. Default with derive: the corpus and what "
            "is derived of it.",
            "group": _TEXT,
        },
    )
    pair_share: float = field(
        default=0.25, metadata={"help": "xlm: rows of sentence pairs by rows of text.", "group": _TEXT}
    )
    block_size: int = field(default=128, metadata={"help": "Tokens a row at most.", "group": _TEXT})
    model_name_or_path: str = field(
        default="embedded",
        metadata={
            "help": f"Encoder to begin with: a Hub id, a folder, `embedded`, or `{NEW}` (random weights).",
            "group": _MODEL,
        },
    )
    model_revision: str = field(
        default="main", metadata={"help": "Branch, tag or commit of a Hub model.", "group": _MODEL}
    )
    layers: int | None = field(
        default=None,
        metadata={"help": "Keep the encoder's first n layers; of a new one its number, 8.", "group": _MODEL},
    )
    hidden_size: int = field(default=512, metadata={"help": f"{NEW}: width.", "group": _MODEL})
    attention_heads: int = field(default=8, metadata={"help": f"{NEW}: attention heads.", "group": _MODEL})
    vocabulary: Literal["keep", "cut", "train"] = field(
        default="keep",
        metadata={
            "help": "The encoder's own; of it the pieces that the text uses most; or a new one, trained on the text.",
            "group": _MODEL,
        },
    )
    vocab_size: int = field(
        default=40_000, metadata={"help": "cut, train: pieces, before those of a derived language.", "group": _MODEL}
    )
    dictionary: str | None = field(
        default=None,
        metadata={"help": "LANG=FILE in MUSE's format; not with derive, which has its own.", "group": _DICTIONARY},
    )
    test_dictionary: str | None = field(
        default=None,
        metadata={"help": "LANG=FILE, whose other entries' alignment is scored.", "group": _DICTIONARY},
    )
    dictionary_share: float = field(
        default=0.25, metadata={"help": "Share of the entries that training looks at.", "group": _DICTIONARY}
    )
    target_lang: str = field(default="en", metadata={"help": "The pivot language.", "group": _TEXT})
    dry_run: bool = field(
        default=False,
        metadata={"help": "Show the text, the vocabulary and the entries; train nothing.", "group": "Run"},
    )

    def changed(self) -> dict[str, Any]:
        """The arguments that differ from their defaults."""
        from hf_xalign.config import non_default_fields

        return non_default_fields(self)

    def check(self, args: AlignMLMConfig) -> None:
        """Refuse arguments that do not go together, before anything is read.

        Raises:
            InputError: naming the argument and the way out.
        """
        if not self.corpus:
            raise InputError("corpus is missing: name text of each language, as in --corpus en=FILE de=FILE")
        languages = [parse_source(item)[1] for item in self.corpus]
        for item, language in zip(self.corpus, languages, strict=True):
            if language is None:
                raise InputError(f"corpus {item}: say the language, as in en={item}")
            if languages.count(language) > 1:
                raise InputError(f"corpus: {language} is named twice")
        if self.derive and len(self.corpus) > 1:
            raise InputError("derive makes the second language itself: name one corpus")
        if ("syntax" in self.derive) != bool(self.order_of):
            raise InputError("order_of goes with derive syntax, and syntax needs it: give both or none")
        if self.derive and (self.dictionary or self.test_dictionary):
            raise InputError("dictionary: a derived language brings its own; leave dictionary and test_dictionary out")
        if args.needs_entries and not self.derive and not self.dictionary:
            raise InputError(f"objective={args.objective} needs a dictionary: --dictionary LANG=FILE")
        if args.objective == "xlm" and not self.derive and not self.parallel:
            raise InputError("objective=xlm needs sentence pairs: --parallel LANG=FILE")
        if args.objective != "xlm" and self.parallel:
            raise InputError(f"parallel is for objective=xlm; objective={args.objective} has no use for it")
        if self.model_name_or_path == NEW and self.vocabulary != "train":
            raise InputError(f"model_name_or_path={NEW} has no vocabulary: --vocabulary train")
        if self.model_name_or_path != NEW and self.vocabulary == "train":
            raise InputError(
                f"vocabulary=train: the pieces of {self.model_name_or_path} have embeddings and new ones would not; "
                f"--vocabulary cut, or --model_name_or_path {NEW}"
            )
