"""Terms of a loss: what they read is there, what does not fit is refused, and one of a user's own trains."""

import re
from dataclasses import dataclass

import pytest
import torch
from datasets import Dataset
from support.align_mlm import make_entries, make_rows
from support.fao import PAGE, page_terms
from support.launch import STEP
from support.numeric import assert_rounding
from support.ppa import SMALL, make_pairs
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.data.batches.pairs import PairCollator
from hf_xalign.errors import InputError
from hf_xalign.objectives import (
    KeepMidpoints,
    KeepPivot,
    KeepSimilarities,
    MaskedTokens,
    Objective,
    SentenceContrast,
    Term,
    Vectors,
    WordContrast,
    WordDistance,
)
from hf_xalign.objectives.pivot import similarity_change
from hf_xalign.trainers import (
    AlignMLMConfig,
    AlignMLMTrainer,
    ContinualTrainer,
    FAOConfig,
    FAOTrainer,
    MAOConfig,
    MAOTrainer,
    PPAConfig,
    PPATrainer,
)

QUIET = {"preset": "joint", "report_to": "none", "use_cpu": True}


@dataclass(kw_only=True)
class AllWords(Term):
    """Sum over all words of their squared length, by the sentence's number."""

    name = "words"
    reads = ("words",)

    def count(self, batch):
        return len(batch["word_sentences"])

    def __call__(self, vectors):
        assert len(vectors.words) == len(vectors.batch["word_sentences"])
        return (vectors.words.square().sum((1, 2)) * (1 + vectors.batch["word_sentences"])).sum()

    def formula(self):
        return "mean over words (1 + k) ||f||^2"


def make(folder, objective, model=None, pairs=8, **settings):
    args = FAOConfig(output_dir=str(folder), **QUIET, save_strategy="no", **settings)
    given = {"train_dataset": make_links(pairs), "processing_class": make_tokenizer(), "objective": objective}
    return FAOTrainer(make_encoder(layers=4) if model is None else model, args, **given)


def test_settings_and_terms_are_one_loss(tmp_path):
    terms = [WordContrast(temperature=0.05), KeepPivot(weight=2.0), KeepMidpoints(weight=5.0), SentenceContrast()]
    terms += [KeepSimilarities(weight=0.2, of=of) for of in ("sentences", "words")]
    found = []
    for name, objective, settings in (("terms", terms, {}), ("settings", None, {"sentence_weight": 1.0})):
        trainer = make(tmp_path / name, objective, max_steps=3, learning_rate=1e-2, **settings)
        trainer.train()
        found.append((trainer.formula(), dict(trainer.model.named_parameters())))
    assert found[0][0] == found[1][0]
    for name, weight in found[0][1].items():
        assert torch.equal(weight, found[1][1][name]), name


def test_a_term_reads_a_layer_of_its_own(tmp_path):
    objective = [WordDistance(layers=[2]), KeepPivot(norm="squared_l2", layers=[1, -1]), KeepMidpoints(layers=[1])]
    for reference in ("copy", "cache"):
        model, before = (make_encoder(layers=4).double().eval() for _ in range(2))
        trainer = make(tmp_path / reference, objective, model, 3, reference=reference)
        trainer.cache_start()
        with torch.no_grad():
            for weight in trainer.model.parameters():
                if weight.requires_grad:
                    weight += 0.05 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
        batch = trainer.data_collator([trainer.train_dataset[k] for k in range(3)])

        def states(encoder, batch=batch):
            output = encoder(batch["input_ids"], batch["attention_mask"], output_hidden_states=True)
            return output.hidden_states

        def words(hidden, batch=batch):
            chosen = hidden.flatten(0, 1)[batch["token_index"]]
            sums = chosen.new_zeros(len(batch["token_counts"]), chosen.shape[1])
            return sums.index_add(0, batch["token_word"], chosen) / batch["token_counts"].unsqueeze(1)

        now, then = states(trainer.model), [hidden.detach() for hidden in states(before)]
        aligned, links = words(now[2]), batch["links"].tolist()
        expected = sum((aligned[i] - aligned[j]).square().sum() for i, j in links) / len(links)
        expected = expected + sum(
            (words(now[k])[w] - words(then[k])[w]).square().sum() for k in (1, 4) for w in batch["kept_words"].tolist()
        ) / len(batch["kept_words"])
        mask = batch["attention_mask"].unsqueeze(-1)
        ours, theirs = ((hidden * mask).sum(1) / mask.sum(1) for hidden in (now[1], then[1]))
        for k in range(3):
            middle, place = (ours[k] + ours[k + 3]) / 2, (theirs[k] + theirs[k + 3]) / 2
            expected = expected + (middle - place).square().sum() / place.square().sum() / 3
        loss = trainer.compute_loss(trainer.model, batch)
        dtype = torch.float64 if reference == "copy" else torch.float32
        assert_rounding(loss, expected, STEP, max(expected.item(), 1), dtype)


def test_all_words_are_in_the_batch_and_the_linked_ones_alone_are_kept():
    row = {"source_ids": [2, 7, 8, 5, 3], "source_starts": [1, 3], "source_ends": [3, 4], "links": [[1, 0]]}
    row |= {"target_ids": [2, 9, 6, 3], "target_starts": [1, 2], "target_ends": [2, 3]}
    given = {"pooling": "mean", "regularized_words": "linked"}
    plain, every = (PairCollator(0, **given, every_word=every)([row, row]) for every in (False, True))
    assert every["word_sentences"].tolist() == [0, 0, 1, 1, 2, 2, 3, 3] and "word_sentences" not in plain
    assert every["links"].tolist() == [[1, 4], [3, 6]] and plain["links"].tolist() == [[0, 2], [1, 3]]
    assert every["kept_words"].tolist() == [4, 6] and every["kept_links"].tolist() == [0, 1]
    for name in ("kept_ids", "kept_mask", "kept_index", "kept_word", "kept_counts", "kept_links"):
        assert torch.equal(every[name], plain[name]), name


def test_what_does_not_fit_is_refused(tmp_path):
    class Nameless(AllWords):
        name = "align"

    class Unknown(AllWords):
        reads = ("word",)

    class Quiet(AllWords):
        reads = ("sentences",)

        def count(self, batch):
            return 1

    refused = {
        r"two terms are called align. Give one of the classes another": [WordDistance(), Nameless()],
        "f0 of different words": [KeepPivot(), WordDistance(target="frozen", side="source")],
    }
    for message, terms in refused.items():
        with pytest.raises(ValueError, match=message):
            Objective(terms)
    with pytest.raises(ValueError, match=r"vectors.words was not computed: add it to the term's `reads`"):
        make(tmp_path, [Quiet()], max_steps=1).train()
    trainers = {
        r"regularizer_weight=3\.0: objective= defines the loss": ([AllWords()], {"regularizer_weight": 3.0}),
        "WordContrast compares vectors of one layer": ([WordContrast(layers=[1, 2])], {}),
        "words reads word, which FAOTrainer does not compute. Use links, words": ([Unknown()], {}),
    }
    for message, (objective, settings) in trainers.items():
        with pytest.raises(ValueError, match=message):
            make(tmp_path, objective, **settings)
    args = MAOConfig(output_dir=str(tmp_path), report_to="none", use_cpu=True)
    given = {"train_dataset": make_links(4), "processing_class": make_tokenizer()}
    with pytest.raises(ValueError, match="words reads words, but this module reads only linked words"):
        MAOTrainer(make_encoder(), args, **given, objective=[AllWords()])


@dataclass(kw_only=True)
class KeyDistance(Term):
    name = "keys"
    reads = ("keys",)

    def count(self, batch):
        return len(batch["pairs"])

    def __call__(self, vectors):
        return (1 - (vectors.queries * vectors.keys).sum(-1)).sum()

    def formula(self):
        return "mean over pairs of 1 - q.k"


@dataclass(kw_only=True)
class EntryDistance(Term):
    """Mean squared distance of the embeddings of dictionary entries."""

    name = "entries"
    reads = ("entries",)

    def count(self, batch):
        return None

    def __call__(self, vectors):
        return vectors.embeddings[vectors.entries].diff(dim=1).square().sum() / len(vectors.entries)

    def formula(self):
        return "mean over entries of |E[a] - E[b]|^2"


def test_terms_of_ones_own_train_in_ppa_and_align_mlm(tmp_path):
    given = {"processing_class": make_tokenizer()}
    args = PPAConfig(output_dir=str(tmp_path / "ppa"), **{**SMALL, "max_steps": 3, "logging_steps": 1})
    terms = [KeyDistance(weight=2.0), MaskedTokens(weight=0.5)]
    ppa = PPATrainer(make_encoder(), args, train_dataset=make_pairs(), objective=terms, **given)
    settings = {"max_steps": 3, "logging_steps": 1, "report_to": "none", "use_cpu": True, "save_strategy": "no"}
    args = AlignMLMConfig(output_dir=str(tmp_path / "mlm"), **settings)
    rows = {"train_dataset": make_rows(), "entries": make_entries()}
    terms = [MaskedTokens(), EntryDistance(weight=3.0)]
    mlm = AlignMLMTrainer(make_encoder(), args, **rows, objective=terms, **given)
    assert ppa.formula().startswith("2 mean over pairs of 1 - q.k\n+ 0.5 mean over masked tokens")
    assert mlm.formula().endswith("\n+ 3 mean over entries of |E[a] - E[b]|^2")
    for trainer, weights in ((ppa, {"keys": 2.0, "mlm": 0.5}), (mlm, {"mlm": 1.0, "entries": 3.0})):
        trainer.train()
        logs = [row for row in trainer.state.log_history if "loss" in row]
        assert len(logs) == 3
        for row in logs:
            assert row["loss"] == pytest.approx(sum(w * row[f"loss/{name}"] for name, w in weights.items()), rel=1e-5)
    assert (ppa.queue.pairs >= 0).sum() == min(3 * args.train_batch_size, len(ppa.queue))
    with pytest.raises(InputError, match=r"keys reads keys, which FAOTrainer does not compute\. Use links, words, f0"):
        make(tmp_path, [KeyDistance()])


@pytest.mark.parametrize("trainer", [FAOTrainer, ContinualTrainer, PPATrainer, AlignMLMTrainer])
def test_the_page_names_what_a_term_can_read(trainer):
    row = next(line for line in PAGE.read_text("utf-8").splitlines() if line.startswith(f"| `{trainer.__name__}`"))
    assert set(re.findall(r"`(\w+)`", row)[1:]) == set(trainer.computes)


def test_the_page_against_a_loop():
    """The cost of the plan, and the plan's margins: 1/n a source word, 1/m a target word."""
    words = torch.randn(9, 1, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64).float()
    owners = torch.tensor([0, 0, 1, 1, 1, 2, 2, 2, 3])
    batch = {"word_sentences": owners, "input_ids": torch.zeros(4, 5)}
    term = page_terms(entropy=0.5, iterations=500)[0]
    expected = 0.0
    for source, target in ((0, 2), (1, 3)):
        x, y = (words[owners == k, 0].double() for k in (source, target))
        cost = torch.tensor([[1 - float(torch.cosine_similarity(a, b, dim=0)) for b in y] for a in x])
        kernel, v = torch.exp(-cost / 0.5), torch.ones(len(y), dtype=cost.dtype)
        for _ in range(500):
            u = 1 / len(x) / (kernel @ v)
            v = 1 / len(y) / (kernel.T @ u)
        plan = u[:, None] * kernel * v
        assert torch.allclose(plan.sum(1), torch.full((len(x),), 1 / len(x), dtype=plan.dtype))
        expected += float((plan * cost).sum())
    assert float(term(Vectors(batch, words=words))) == pytest.approx(expected, rel=1e-5)


def test_soft_links_need_no_aligner(tmp_path, monkeypatch):
    from hf_xalign.links import linking

    monkeypatch.setattr(linking, "align_words", None)
    rows = [{"source": f"katze {k}", "target": f"cat {k}", "source_lang": "de", "target_lang": "en"} for k in range(4)]
    args = FAOConfig(output_dir=str(tmp_path), **QUIET, max_steps=9, learning_rate=1e-2, logging_steps=1)
    given = {"train_dataset": Dataset.from_list(rows), "processing_class": make_tokenizer()}
    trainer = FAOTrainer(make_encoder(), args, **given, objective=page_terms())
    trainer.train()
    losses = [row["loss/transport"] for row in trainer.state.log_history if "loss/transport" in row]
    assert 0 < losses[-1] < losses[0]
    assert trainer.formula().startswith("mean over pairs sum over words T(i, j) (1 - cos(f(i, s), f(j, t)))")


def test_similarities_do_not_change_with_a_rotation():
    before = torch.randn(5, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    rotation, _ = torch.linalg.qr(torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    assert similarity_change(3 * before @ rotation, before).abs().max() < 1e-25
    assert similarity_change(before[:2], -before[:2]).tolist() == [0, 0]
    moved = (before + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: similarity_change(x, before), (moved,))
