"""Command-line arguments of the recipes, in dataclasses."""

from __future__ import annotations

from dataclasses import MISSING, dataclass
from typing import TYPE_CHECKING, Any, Literal

from hf_xalign.checks import GIVEN, excludes, needs, setting
from hf_xalign.data.sources import PairText, check_files, check_models, parse_named
from hf_xalign.errors import InputError
from hf_xalign.language_codes import check_language
from hf_xalign.pretrained import adapter_base
from hf_xalign.record import DERIVED_FILE
from hf_xalign.trainers.mapping.trainer_config import MappingConfig, VectorsFormat

if TYPE_CHECKING:
    from hf_xalign.trainers import AlignMLMConfig, TaskConfig

# In the place of a folder or a Hub id, neither of which has this name.
NEW = "new"
_DATA = "Model and data"


def option(group: str, help: str, default: object = MISSING, **checks: object) -> Any:
    """Return the dataclass field of a command-line option under the heading `group`; required without a default."""
    return setting(default, help=help, group=group, **checks)


@dataclass
class ParallelText(PairText):
    """Parallel text of a run."""

    train_data: list[str] = option(
        _DATA,
        "Parallel text: builtin:de, LANG=FILE (TSV, CSV, JSONL, JSON, Parquet, TMX), LANG=FILE1,FILE2, "
        "LANG=HUB_ID[:CONFIG].",
        ["builtin:de", "builtin:bn"],
    )
    eval_data: list[str] = option(_DATA, "Held-out text, in the form of train_data.", ["builtin:de", "builtin:bn"])
    train_split: str = option(_DATA, "Split of built-in and Hub training data.", "train")
    eval_split: str = option(_DATA, "Split of built-in and Hub held-out data.", "test")
    max_eval_pairs: int | None = option(_DATA, "Use the first n pairs of each held-out source.", None, least=1)

    def check_files(self) -> None:
        """Refuse files and folders that are not there, also those of the fields of subclasses."""
        given = vars(self)
        check_models([given.get("model_name_or_path")])
        links = given.get("eval_links")
        check_files([*self.train_data, *([links] if links else self.eval_data)])
        kind, _, path = given.get("aligner", "").partition(":")
        if kind in ("pharaoh", "dictionary") and "{lang}" not in path:
            check_files([path])


@dataclass
class TextArguments(ParallelText):
    """The encoder and the text of a run."""

    model_name_or_path: str = option(
        _DATA, "Encoder: a Hub id, a folder, or `builtin` (no network needed).", "builtin"
    )
    max_train_pairs: int | None = option(
        _DATA, "Use n pairs of each training source that pass the filters, selected by draw.", None, least=1
    )
    model_revision: str = option(_DATA, "Branch, tag or commit of a Hub model.", "main")
    probe: list[str] = option(
        "Run",
        "Frozen probes to score before and after: NAME (or NAME:COLUMN of the labels), LANG=FILE to train on and "
        "LANG=FILE to test on, then the next NAME, as in `hf-xalign evaluate`. `pos builtin:en builtin:de` "
        "are parts of speech of the built-in text.",
        [],
    )
    seeds: list[int] = option(
        "Run",
        "Seeds, one run each in a folder seed-<number> of output_dir. The text is drawn and linked once, by seed. "
        "Finished seeds are kept, and compare reads the folder. Default: seed alone.",
        [],
        least=0,
        distinct=True,
        rules=[
            excludes("every seed would go to the same place; hf-xalign push sends one", push_to_hub=True),
            excludes("seeds resume by themselves", resume_from_checkpoint=GIVEN),
        ],
    )
    dry_run: bool = option("Run", "Show data, links, cache size and an estimate of the time; train nothing.", False)


@dataclass
class DataArguments(TextArguments):
    """The encoder, the text and the word links of a run."""

    aligner: str = option(
        "Word links",
        "fast_align, hmm, ibm1 to ibm4, eflomal (all by sil-thot), pharaoh:PATH, dictionary:PATH, encoder (the one to "
        "train), or encoder:MODEL (another, such as the folder of a run).",
        "fast_align",
    )
    symmetrization: Literal["intersection", "union", "grow-diag", "grow-diag-final-and"] = option(
        "Word links", "How to combine the two directions of the aligner.", "intersection"
    )
    one_to_one: bool = option("Word links", "A word with two links loses all its links.", True)
    eval_links: str | None = option(
        "Word links", "eval_links.jsonl of another run, to score on the same links. Overrides eval_data.", None
    )
    protocol: list[str] = option(
        "Word links",
        "Also score by these protocols: mao (as published), or identical, specials, legacy, cosine, joined by +.",
        [],
    )


@dataclass
class MappingArguments(MappingConfig):
    """Settings of the maps, and the files that they are learnt from."""

    source_model: str | None = option(
        "Run", "Encoder of the other languages, if the pivot has another. Default: model_name_or_path.", None
    )
    target_model: str | None = option("Run", "Encoder of the pivot. Default: model_name_or_path.", None)
    source_vectors: str | None = option(
        "Word vectors",
        "Map this file of word vectors, FILE or LANG=FILE: .vec or .txt of word2vec, fastText or GloVe, .bin of "
        "word2vec, each also .gz. No encoder and no text is read, and dictionaries need no LANG.",
        None,
        rules=[needs(target_vectors=GIVEN), excludes("they are mapped in memory, once", seeds=GIVEN)],
    )
    target_vectors: str | None = option(
        "Word vectors",
        "Word vectors of the pivot, in the form of source_vectors.",
        None,
        rules=[needs(source_vectors=GIVEN)],
    )
    max_vectors: int = option(
        "Word vectors",
        "Use the first n words of each file, the most frequent.",
        200_000,
        least=1,
        rules=[needs(source_vectors=GIVEN)],
    )
    vectors_format: VectorsFormat = option(
        "Word vectors",
        "Format of the mapped vectors of both languages.",
        "safetensors",
        rules=[needs(source_vectors=GIVEN)],
    )
    draw: Literal["first", "seed"] = option("Word links", "max_train_pairs: the first pairs, or a draw.", "seed")
    dictionary: list[str] = option(
        "Dictionaries", "Training dictionaries in MUSE's format, LANG=FILE; the columns may come in any order.", []
    )
    test_dictionary: list[str] = option(
        "Dictionaries",
        "Dictionaries for scoring lexicon induction, of the same format. Word vectors: by default a fixed fifth of "
        "the source words of dictionary, which are then not learnt from.",
        [],
    )
    text: list[str] = option(
        "Anchors", "Text for anchors beside train_data's: LANG=FILE (.txt, .jsonl, .parquet) or LANG=HUB_ID.", []
    )

    def __post_init__(self) -> None:
        if self.source_vectors and self.target_vectors:
            self.supervision = "dictionary"
        super().__post_init__()

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        check_models([self.source_model, self.target_model])
        vectors = filter(None, [self.source_vectors, self.target_vectors])
        check_files([*self.dictionary, *self.test_dictionary, *self.text, *vectors])


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
        self.target_lang = check_language(self.target_lang, "target_lang")
        given: dict[str, list[Any]] = {"corpus": self.corpus, "eval_corpus": self.eval_corpus}
        given |= {"dictionary": [self.dictionary], "test_dictionary": [self.test_dictionary]}
        languages = {name: [parse_named(item, name)[1] for item in items if item] for name, items in given.items()}
        languages["target_lang"] = [self.target_lang] * len(languages["dictionary"])  # of whose first words it is
        for name, codes in languages.items():
            if twice := [language for language in codes if codes.count(language) > 1]:
                raise InputError(f"{name}: {twice[0]} is named twice")
        if self.derive and len(self.corpus) > 1:
            raise InputError("derive makes the second language itself: name one corpus")
        if args.needs_entries and not self.derive and not self.dictionary:
            raise InputError(f"objective={args.objective} needs a dictionary: --dictionary LANG=FILE")
        known_by = {"eval_corpus": "corpus", "dictionary": "corpus", "target_lang": "corpus"}
        for name, known in (known_by | {"test_dictionary": "dictionary"}).items():
            if unknown := [language for language in languages[name] if language not in languages[known]]:
                raise InputError(f"{name} of {unknown[0]}: {known} has none of that language")
        if args.objective == "xlm" and not self.derive:
            raise InputError("objective=xlm needs sentence pairs, which --derive makes")
        if self.target_lang in languages["dictionary"]:
            raise InputError(f"dictionary of {self.target_lang}: that is the pivot; name the language of column two")


_PAIRS = "Sentence pairs"
_LABELLED = excludes("questions have a format and a metric of their own", task="questions")


@dataclass
class TaskArguments:
    """Encoder, task and labelled text."""

    task: str = option(
        _DATA,
        "token: a label for each word; sequence: one for a text or a pair of texts; questions: extractive questions "
        "(SQuAD); module:Class: a task of your own.",
        "token",
        rules=[excludes("a tagger labels words", ("sequence", "questions"), head="tagger")],
    )
    model_name_or_path: str = option(
        _DATA, "Encoder: a Hub id, a folder, or `builtin` (no network needed); {seed} is the run's seed.", "builtin"
    )
    model_revision: str = option(_DATA, "Branch, tag or commit of a Hub model.", "main")
    adapter: str | None = option(
        _DATA, "Folder of a frozen module between encoder and head: MAO or a map; {seed} is the run's seed.", None
    )
    train_data: list[str] = option(
        _DATA,
        "Labelled text, one or several: LANG=FILE (JSON, JSONL, TSV, CSV, CoNLL, CoNLL-U) or LANG=HUB_ID[:CONFIG].",
        [],
    )
    eval_data: list[str] = option(
        _DATA,
        "Text to score, one source for each language. LANG+LANG=SOURCE,SOURCE: questions in the first language about "
        "contexts in the second, or pairs of texts with one text, drawn at random, in the second.",
        [],
    )
    select_on: list[str] = option(
        _DATA,
        "Validation text that selects the checkpoint, instead of eval_data and in its form (load_best_model_at_end). "
        "The field selection names the language.",
        [],
        rules=[
            needs("no checkpoint is chosen without it, eval_strategy and save_strategy", load_best_model_at_end=True)
        ],
    )
    code_switch: str | None = option(
        _DATA,
        "English original of translated training text, LANG=SOURCE: each example becomes two in one batch, with one "
        "of its texts in English (PPA). Batch sizes count the original examples.",
        None,
    )
    derived_language: str | None = option(
        _DATA,
        "Folder of hf-xalign train align_mlm: text named by the code of its derived language (en-x-inv-trans=FILE) is "
        "natural text, and derived when it is read.",
        None,
    )
    train_split: str = option(_DATA, "Split of Hub training data.", "train")
    eval_split: str = option(_DATA, "Split of Hub evaluation data.", "test")
    select_split: str = option(_DATA, "Split of Hub data in select_on.", "validation")
    dataset_revision: str | None = option(_DATA, "Branch, tag or commit of Hub datasets.", None)
    text_columns: list[str] = option(
        _DATA,
        "Column of words (default tokens), or one or two of texts (default text_a and text_b, else text). Known "
        "data sets need none.",
        [],
        rules=[_LABELLED],
    )
    label_column: str | None = option(
        _DATA,
        "Default: labels of words, else upos (CoNLL-U); label of texts. CoNLL's columns have numbers.",
        None,
        rules=[_LABELLED],
    )
    label_names: list[str] = option(
        _DATA,
        "Names of labels that are numbers, from 0 on. Hub datasets with class labels need none.",
        [],
        rules=[_LABELLED],
    )
    labels: list[str] = option(
        _DATA, "All labels, FILE.json; or labels in addition to those of the training text.", [], rules=[_LABELLED]
    )
    metric: Literal["accuracy", "token_f1", "span_f1"] | None = option(
        _DATA,
        "Headline score. Default: span_f1 of labels of spans (BIO, BIOES, ...), accuracy of others. With span_f1 of "
        "others, neighbours with one label are a span, as seqeval scores parts of speech.",
        None,
        rules=[_LABELLED, excludes("texts are scored by accuracy", ("token_f1", "span_f1"), task="sequence")],
    )
    max_question_tokens: int = option(_DATA, "questions: longer questions are truncated.", 64)
    overlap: int = option(_DATA, "questions: tokens that consecutive windows of a text share.", 128)
    max_train_examples: int | None = option(_DATA, "Use the first n examples of each training source.", None)
    max_eval_examples: int | None = option(_DATA, "Use the first n examples of each evaluation source.", None)
    seeds: list[int] = option("Run", "Seeds, one run each. Default: seed alone.", [], least=0, distinct=True)
    save_models: bool = option("Run", "Keep each seed's model and checkpoints, not only scores.", False)
    dry_run: bool = option("Run", "Show text, labels and an estimate of the time; train nothing.", False)

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        check_models([self.model_name_or_path])
        check_models([self.adapter], whole=False)
        check_files(filter(None, [self.derived_language and f"{self.derived_language}/{DERIVED_FILE}"]))
        check_files([*self.train_data, *self.eval_data, *self.select_on, *filter(None, [self.code_switch])])

    def check(self, args: TaskConfig) -> None:
        """Refuse encoders, adapters and heads that do not go together, before any text is read."""
        from hf_xalign.tasks.models import check_parts

        for seed in self.seeds or [args.seed]:
            check_parts(*self.named(seed), tagger=args.head == "tagger", layers=getattr(self, "tagger_layers", None))

    def named(self, seed: int) -> tuple[str, str | None]:
        """Return the encoder and the adapter of a seed; an adapter's folder in the encoder's place names its own."""
        model = self.model_name_or_path.replace("{seed}", str(seed))
        adapter = self.adapter and self.adapter.replace("{seed}", str(seed))
        if adapter is None and (base := adapter_base(model)):
            return base, model
        return model, adapter


@dataclass
class FinetuneArguments(TaskArguments):
    """Encoder, task, and size of the tagger."""

    tagger_layers: list[int] | None = option(
        "Tagger",
        "Encoder layers to read. Default: those with maps or a module, else the last four.",
        None,
        rules=[needs(head="tagger")],
    )
    tagger_lstm_size: int = option(
        "Tagger", "Units per direction of the BiLSTM; 384 in ROTATE.", 384, rules=[needs(head="tagger")]
    )


@dataclass
class ContinualArguments(TaskArguments, PairText):
    """Encoder, task, and sentence pairs that keep the languages aligned."""

    pairs: list[str] = option(_PAIRS, "Sentence pairs, as in hf-xalign train fao.", ["builtin:de", "builtin:bn"])
    pairs_split: str = option(_PAIRS, "Split of built-in and Hub pairs.", "train")
    max_pairs: int | None = option(_PAIRS, "Use n linked pairs of each source, selected by draw.", None, least=1)
    aligner: str = option(_PAIRS, "Word aligner; any but encoder.", "fast_align")
    reference: str = option(_PAIRS, "f0: the encoder before any alignment.", "builtin")

    def check(self, args: TaskConfig) -> None:
        """Raise InputError for a module on the encoder."""
        if self.adapter is not None:
            raise InputError("adapter: continual alignment trains the encoder itself. Remove the adapter.")
        super().check(args)

    def check_files(self) -> None:
        """Refuse files and folders that are not there."""
        super().check_files()
        check_models([self.reference], whole=False)
        check_files(self.pairs)
