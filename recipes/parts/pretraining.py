"""Text, vocabulary, encoder and dictionary of a pre-training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any, cast

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase, RobertaConfig, RobertaModel

from hf_xalign.data.builtin import resolve_model
from hf_xalign.data.derived.language import Alphabet, DerivedLanguage, SharedPieces, derive, derive_pairs
from hf_xalign.data.derived.word_order import WordOrder, read_trees
from hf_xalign.data.load import Entry, source_entry
from hf_xalign.data.monolingual import load_monolingual
from hf_xalign.data.parallel import warn_of_overlap
from hf_xalign.data.pretraining.rows import TokenEntries, encode_pretraining, single_pieces
from hf_xalign.data.pretraining.vocabulary import cut_tokenizer, extend_tokenizer, train_tokenizer
from hf_xalign.data.readers.dictionaries import load_dictionary
from hf_xalign.data.sources import parse_named, parse_source
from hf_xalign.errors import InputError
from hf_xalign.modeling.checkpoint import load_trainable
from hf_xalign.modeling.freezing import encoder_layers
from hf_xalign.modeling.languages import add_language_embeddings
from hf_xalign.pretrained import load_tokenizer
from hf_xalign.recipes.parts.arguments import NEW, PretrainingArguments
from hf_xalign.recipes.parts.run import RunText
from hf_xalign.record import Record
from hf_xalign.trainers.align_mlm_config import AlignMLMConfig


@dataclass
class PretrainingCorpus(RunText):
    """Encoder and text of a pre-training run; the first of `languages` is the pivot or the natural language.

    `test_entries` int64 (n, 2) are the token pairs of a language whose alignment is scored, among its `candidates`
    int64 (m,). `notes` are lines about the transliteration.
    """

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    languages: list[str]
    train: Dataset
    evaluation: Dataset | None
    counts: dict[str, str]
    dictionary: TokenEntries | None
    test_entries: dict[str, np.ndarray]
    candidates: dict[str, np.ndarray]
    derived: DerivedLanguage | None
    sources: dict[str, list[Entry]]
    notes: list[str]

    def entries(self) -> Record:
        """Return the arguments of [`~hf_xalign.record.start_record`] on the text."""
        pivot, *others = self.languages
        return {"languages": others, "pivot": pivot, "data": self.sources}

    def describe(self) -> list[str]:
        """Describe text, vocabulary and dictionary, one line each."""
        lines = [f"text     {name}: {counts}" for name, counts in self.counts.items()]
        if self.evaluation is not None:
            lines.append(f"held out {len(self.evaluation):,} rows")
        lines.append(f"pieces   {len(self.tokenizer):,}")
        lines += self.notes
        if self.dictionary is not None:
            lines.append(f"entries  {self.dictionary.origin}")
        for language, scored in self.test_entries.items():
            among = f"among {len(self.candidates[language]):,} tokens"
            lines.append(f"scored   {len(scored):,} entries of {language}, {among}")
        return lines


def load_pretraining(data: PretrainingArguments, args: AlignMLMConfig) -> PretrainingCorpus:
    """Read the text, and make the vocabulary, the encoder and the dictionary."""
    corpora = dict(_read(item, data, data.max_sentences) for item in data.corpus)
    held_out = dict(_read(item, data, None) for item in data.eval_corpus)
    for language, text in held_out.items():
        if {*text.column_names} == {*corpora[language].column_names} == {"text"}:
            warn_of_overlap(corpora[language], text)
    tokenizer, old_ids = _tokenizer(data, corpora)
    languages = sorted(corpora, key=lambda code: code != data.target_lang)
    derived = counterparts = pairs = alphabet = shared = None
    notes: list[str] = []
    if data.derive:
        if "transliteration" in data.derive:
            alphabet = Alphabet.of([*_texts(corpora), *_texts(held_out)], tokenizer)
            for texts in (corpora, held_out):
                notes += _unknown_characters(texts, alphabet)
            natural_tokenizer = tokenizer
            tokenizer, counterparts = extend_tokenizer(tokenizer, alphabet)
            if data.shared:
                shared = SharedPieces.draw(natural_tokenizer, counterparts[:, 0], data.shared, seed=args.seed)
                notes.append(f"shared   {len(shared.pieces):,} of {len(counterparts):,} pieces are not transliterated")
                counterparts = counterparts[~np.isin(counterparts[:, 0], shared.pieces)]
        natural = corpora[languages[0]]
        order = WordOrder.learn(chain.from_iterable(map(read_trees, data.order_of))) if data.order_of else None
        derived = DerivedLanguage(
            languages[0],
            tuple(data.derive),  # type: ignore[arg-type]
            seed=args.seed,
            shared=shared,
            alphabet=alphabet,
            word_order=order,
        )
        if args.objective == "xlm":
            pairs = derive_pairs(natural, derived, _column(natural))
        languages.append(derived.code)
        for texts in (corpora, held_out):
            if texts:
                texts[derived.code] = derive(texts[languages[0]], derived, [_column(texts[languages[0]])])
    model = _encoder(data, tokenizer, old_ids, args.seed)
    if args.has_language_embeddings:
        add_language_embeddings(model, languages)
    entries, test_entries, candidates = _dictionary(data, args, tokenizer)
    if derived is not None and counterparts is not None:
        if args.needs_entries:
            share, seed, codes = data.dictionary_share, data.entries_seed(args), (derived.base, derived.code)
            entries = TokenEntries.from_counterparts(counterparts, share=share, seed=seed, languages=codes)
        if len(counterparts):
            test_entries, candidates = {derived.code: counterparts}, {derived.code: counterparts[:, 1]}
    if not args.needs_entries:
        entries = None
    encode = partial(
        encode_pretraining,
        tokenizer=tokenizer,
        config=model.config,
        block_size=data.block_size,
        long_sentences=data.long_sentences,
        seed=args.seed,
    )
    rows, counts = encode(corpora, pairs=pairs, pair_share=data.pair_share, pair_halves=data.pair_halves)
    evaluation = encode(held_out)[0] if held_out else None
    sources = {"train": _entries(data.corpus, corpora), "eval": _entries(data.eval_corpus, held_out)}
    text = (languages, rows, evaluation, counts)
    return PretrainingCorpus(model, tokenizer, *text, entries, test_entries, candidates, derived, sources, notes)


def _entries(items: Sequence[str], texts: Mapping[str, Dataset]) -> list[Entry]:
    """Return the record's entries of text that was read in the order of its items."""
    return [source_entry(item, text, sentences=len(text)) for item, text in zip(items, texts.values())]


def _read(item: str, data: PretrainingArguments, limit: int | None) -> tuple[str, Dataset]:
    """Return language and text: the column `words` (CoNLL-U: with the columns of trees), or `text`."""
    source, language = parse_named(item, "corpus")
    options: Any = {"text_column": data.text_column, "lang": language, "revision": data.dataset_revision}
    return language, load_monolingual(source, max_sentences=limit, words=True, **options)


def _column(corpus: Dataset) -> str:
    return "words" if "words" in corpus.column_names else "text"


def _texts(corpora: dict[str, Dataset]) -> list[str]:
    return list(filter(None, chain.from_iterable(map(_cells, corpora.values()))))


def _cells(corpus: Dataset) -> list[str]:
    cells = corpus[_column(corpus)][:]
    return [" ".join(cell) if isinstance(cell, list) else cell or "" for cell in cells]


def _unknown_characters(corpora: dict[str, Dataset], alphabet: Alphabet) -> list[str]:
    """Describe the rows with characters beyond the alphabet, which stay in both languages."""
    lines = []
    for language, corpus in corpora.items():
        unknown = list(filter(None, map(alphabet.unknown, _cells(corpus))))
        if unknown:
            count = len(set().union(*unknown))
            lines.append(
                f"letters  {count:,} characters beyond the {len(alphabet):,} most frequent stay in both languages, in "
                f"{len(unknown):,} rows of {language}"
            )
    return lines


def _tokenizer(
    data: PretrainingArguments, corpora: dict[str, Dataset]
) -> tuple[PreTrainedTokenizerBase, np.ndarray | None]:
    """Return the tokenizer of the natural languages, and the old id of each piece if it was cut."""
    if data.vocabulary == "train":
        return train_tokenizer(_texts(corpora), data.vocab_size, max_length=data.block_size), None
    path = resolve_model(data.model_name_or_path)
    tokenizer = load_tokenizer(path, revision=data.model_revision)
    if data.vocabulary == "keep":
        return tokenizer, None
    return cut_tokenizer(tokenizer, _texts(corpora), data.vocab_size)


def _encoder(
    data: PretrainingArguments, tokenizer: PreTrainedTokenizerBase, old_ids: np.ndarray | None, seed: int
) -> PreTrainedModel:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if data.model_name_or_path == NEW:
            config = RobertaConfig(
                vocab_size=len(tokenizer),
                hidden_size=data.hidden_size,
                num_hidden_layers=data.layers or 8,
                num_attention_heads=data.attention_heads,
                intermediate_size=4 * data.hidden_size,
                max_position_embeddings=data.block_size + 2,
                type_vocab_size=1,
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=tokenizer.cls_token_id,
                eos_token_id=tokenizer.sep_token_id,
            )
            return RobertaModel(config, add_pooling_layer=False)
        model = load_trainable(resolve_model(data.model_name_or_path), revision=data.model_revision)
        if data.layers is not None:
            stack = encoder_layers(model)
            if not 0 < data.layers <= len(stack):
                raise InputError(f"layers={data.layers}: {data.model_name_or_path} has {len(stack)}")
            del stack[data.layers :]
            model.config.num_hidden_layers = data.layers
        table = cast(torch.Tensor, model.get_input_embeddings().weight).detach()
        if old_ids is not None:
            table = table[torch.from_numpy(old_ids)]
            padding = tokenizer.pad_token_id
            model.set_input_embeddings(nn.Embedding.from_pretrained(table, freeze=False, padding_idx=padding))
            model.config.vocab_size, model.config.pad_token_id = len(table), padding
        grows = len(tokenizer) > len(table)
        if grows:
            # New rows follow the normal distribution of the old ones.
            model.resize_token_embeddings(len(tokenizer))
        if data.layers is not None or old_ids is not None or grows:
            # The changed encoder must not be mistaken for its checkpoint.
            model.name_or_path = ""
    return model


def _dictionary(
    data: PretrainingArguments, args: AlignMLMConfig, tokenizer: PreTrainedTokenizerBase
) -> tuple[TokenEntries | None, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the objective's entries, and by language the entries to score and their candidates."""
    if data.dictionary is None:
        return None, {}, {}
    path, language = parse_named(data.dictionary, "dictionary")
    words = load_dictionary(path, language, data.target_lang)
    share, seed, codes = data.dictionary_share, data.entries_seed(args), (data.target_lang, language)
    name = data.dictionary
    entries = TokenEntries.from_dictionary(words, tokenizer, name=name, share=share, seed=seed, languages=codes)
    if data.test_dictionary is None:
        return entries, {}, {}
    known = TokenEntries.from_dictionary(words, tokenizer, name=data.dictionary).ids
    others = load_dictionary(parse_source(data.test_dictionary)[0], language, data.target_lang)
    scored = TokenEntries.from_dictionary(others, tokenizer, name=data.test_dictionary).ids
    scored = scored[~(scored[:, None] == known).all(-1).any(-1)]
    if not len(scored):
        raise InputError(f"test_dictionary={data.test_dictionary}: all its entries are in {data.dictionary}")
    pieces = single_pieces(tokenizer, [translation for _, translation in (*words, *others)])
    candidates = np.unique([piece for piece in pieces if piece is not None])
    return entries, {language: scored}, {language: candidates}
