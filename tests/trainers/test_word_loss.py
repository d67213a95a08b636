"""FAO's and MAO's losses and gradients against loops written from the formulas, in float64."""

import pytest
import torch
from datasets import Dataset
from support import fao
from support.launch import STEP, gradients, same_tensors
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.errors import InputError
from hf_xalign.modeling.xalign.tuner import find_top
from hf_xalign.trainers import FAOConfig, FAOTrainer, MAOConfig, MAOTrainer

# Cached word vectors are float32: each of the 16 numbers of both words of a difference is rounded once.
ROUNDED = 2 * 16

LANGUAGES = ["de", "nl"]
SMALL = {"num_heads": 2, "feedforward_size": 24, "reduction_factor": 4, "dropout": 0.0}
DATA = {"batch_of": "pairs", "regularized_words": "all"}

OTHERS, EACH = {"per_language": "others"}, {"per_language": "all"}
TRANSFORMER = {"top": "transformer"}
ALONE = {**TRANSFORMER, "context": False}
ALL_NEGATIVES = {"objective": "infonce", "negatives": "all"}
KEPT, KEPT_LINKED = {"regularizer_weight": 0.7}, {"regularizer_weight": 0.7, "regularized_words": "linked"}
FROZEN_SOURCE = {"align_target": "frozen", "regularized_side": "source"}
# Settings and a pooling.
CASES = {
    "random, all words kept": ({"init": "random", **KEPT}, "mean"),
    "map for all, linked words kept": ({**EACH, **KEPT_LINKED}, "last"),
    "source kept": ({**OTHERS, **KEPT, "regularized_side": "source", "reduction": "words"}, "mean"),
    "frozen target": ({**OTHERS, "align_target": "frozen"}, "mean"),
    "others, frozen source": ({**OTHERS, **FROZEN_SOURCE, **KEPT}, "mean"),
    "plain norm": ({**OTHERS, **KEPT, "norm": "l2"}, "first"),
    "sum": ({**EACH, **KEPT, "reduction": "sum", "mean_over_dims": True}, "last"),
    "infonce": ({**OTHERS, **ALL_NEGATIVES}, "mean"),
    "infonce over other sentences": ({**ALONE, "objective": "infonce", "negatives": "other_sentences"}, "last"),
    "specials linked": ({**OTHERS, **KEPT, "linked_tokens": "all"}, "mean"),
    "transformer, all words kept": ({**TRANSFORMER, **KEPT}, "first"),
    # What a transformer sees of a sentence: its linked words, those and the special tokens, [CLS] alone.
    "words seen": ({**TRANSFORMER, "regularized_words": "linked"}, "mean"),
    "specials seen": ({**TRANSFORMER, "regularized_words": "linked", "linked_tokens": "all"}, "last"),
    "cls seen": ({**TRANSFORMER, "regularized_words": "linked", "linked_tokens": "cls"}, "mean"),
}
CACHED = ("source kept", "specials linked", "cls seen")
INSIDE = {
    "adapterhub": {"top": "none", "adapters": "adapterhub"},
    "pfeiffer and linear": {"top": "linear", "adapters": "pfeiffer"},
    "houlsby": {"top": "none", "adapters": "houlsby"},
    "lora": {"peft_type": "lora", "peft_options": {"r": 2}},
}
LINKS = {
    "linear infonce": {**EACH, "objective": "infonce", "negatives": "other_sentences"},
    "transformer infonce": {**TRANSFORMER, **ALL_NEGATIVES},
    "transformer kept": {**TRANSFORMER, **KEPT_LINKED},
    "linear, frozen source": {**OTHERS, **KEPT_LINKED, **FROZEN_SOURCE},
}
TEMPERATURE = 0.1


def word_vectors(encoder, words, pooling, linked_tokens, layers=None):
    """{word number, "cls", "sep": its vectors in all layers, in a row} of one sentence, alone in its batch."""
    encoding = make_tokenizer()(words, is_split_into_words=True, return_tensors="pt")
    output = encoder(**encoding, output_hidden_states=True)
    chosen = [output.last_hidden_state] if layers is None else [output.hidden_states[layer] for layer in layers]
    states, owner, found = torch.cat(chosen, dim=-1)[0], encoding.word_ids(0), {}
    for number in range(len(words)):
        pieces = [states[k] for k, w in enumerate(owner) if w == number]
        found[number] = {"first": pieces[0], "last": pieces[-1], "mean": sum(pieces) / len(pieces)}[pooling]
    if linked_tokens != "words":
        found["cls"], found["sep"] = states[0], states[-1]
    return found


def transformer(top, found, language, settings):
    """PyTorch's layer over one sentence, or over one word."""
    words = torch.stack(list(found.values()))
    seen = [words] if settings.get("context", True) else list(words[:, None])
    mapped = torch.cat([top.layer(vectors[None])[0] for vectors in seen])
    if top.gate is not None:
        mapped = words + top.gate * (mapped - words)
    return dict(zip(found, mapped, strict=True))


def linear(top, found, language, settings):
    p = dict(top.named_parameters())
    if settings.get("per_language") == "others" and language == "en":
        return found
    name = f"map_{language}" if "per_language" in settings else "shared"
    matrix = p[f"{name}.weight"]
    bias = p.get(f"{name}.bias", 0.0)
    return {word: matrix @ x + bias for word, x in found.items()}


def distance(a, b, settings):
    """Sum over the layers, of 16 numbers each."""
    squared = ((a - b) ** 2).view(-1, 16).sum(1)
    if settings.get("norm") == "l2":
        return squared.sqrt().sum()
    if settings.get("norm") == "relative":
        return (squared / (b.detach() ** 2).view(-1, 16).sum(1)).sum()
    return squared.sum() / (16 if settings.get("mean_over_dims") else 1)


def contrast(sources, targets, pairs, negatives, temperature):
    """Mean InfoNCE over both words of each link; `pairs` is the sentence pair of each link."""
    words, owner = [*sources, *targets], [*pairs, *pairs]
    total = 0.0
    for a, anchor in enumerate(words):
        partner = (a + len(sources)) % len(words)
        terms = []
        for c, other in enumerate(words):
            left_out = c == a if negatives == "all" else owner[c] == owner[a] and c != partner
            if not left_out:
                terms.append(torch.exp(anchor @ other / (anchor.norm() * other.norm()) / temperature))
        own = torch.exp(anchor @ words[partner] / (anchor.norm() * words[partner].norm()) / temperature)
        total = total - torch.log(own / sum(terms))
    return total / len(words)


def loop_loss(f, frozen, rows, settings):
    """The whole batch's loss, one sentence and one word at a time; `f` and `frozen` map words and their language."""
    if settings.get("reduction") == "sub_batches":
        rows, means = list(rows), settings | {"reduction": "words"}
        return sum(loop_loss(f, frozen, rows[k : k + 4], means) for k in range(0, len(rows), 4))
    specials, side = settings.get("linked_tokens", "words"), settings.get("regularized_side", "target")
    weight = settings.get("regularizer_weight", 0.0)
    align, drift, links, kept = 0.0, 0.0, 0, 0
    sources, targets, owners = [], [], []
    for number, row in enumerate(rows):
        source, target = f(row["source_words"], row["source_lang"]), f(row["target_words"], "en")
        moving = source if side == "source" else target
        with torch.no_grad():
            f0 = frozen(row[f"{side}_words"])
        pairs = {
            "words": [tuple(link) for link in row["links"]],
            "cls": [("cls", "cls")],
            "cls_sep": [("cls", "cls"), ("sep", "sep")],
            "all": [*(tuple(link) for link in row["links"]), ("cls", "cls"), ("sep", "sep")],
        }[specials]
        for i, j in pairs:
            links += 1
            sources.append(source[i])
            targets.append(target[j])
            owners.append(row.get("pair", number))
            a, b = source[i], target[j]
            if settings.get("align_target") == "frozen":
                a, b = (f0[i], b) if side == "source" else (a, f0[j])
            align = align + distance(a, b, settings)
        if not weight:
            chosen = ()
        elif settings.get("regularized_words", "all") == "linked":
            chosen = dict.fromkeys(pair[0 if side == "source" else 1] for pair in pairs)
        else:
            both = settings.get("regularized_words") == "all_specials"
            chosen = [word for word in f0 if both or not (specials == "cls" and word == "sep")]
        for word in chosen:
            kept += 1
            drift = drift + distance(moving[word], f0[word], settings)
    reduction = settings.get("reduction", "links")
    if settings.get("objective") == "none":
        align = 0.0
    elif settings.get("objective") == "infonce":
        align = contrast(sources, targets, owners, settings["negatives"], TEMPERATURE)
    else:
        align = align / (1 if reduction == "sum" else links)
    return align + weight * drift / {"sum": 1, "links": links, "words": max(kept, 1)}[reduction]


def loop_sentences(model, before, rows, settings):
    """The terms of whole sentences, one pair at a time. Both sides are taught the pivot sentence's vector before."""
    drift, taught, sides, old = 0.0, 0.0, ([], []), []
    for row in rows:
        now, then = [], []
        for words in (row["source_words"], row["target_words"]):
            encoding = make_tokenizer()(words, is_split_into_words=True, return_tensors="pt")
            now.append(model(**encoding).last_hidden_state[0].mean(0))
            then.append(before(**encoding).last_hidden_state[0].mean(0).detach())
        drift = drift + distance(sum(now) / 2, sum(then) / 2, settings)
        taught = taught + sum(distance(vector, then[1], {"norm": "relative"}) for vector in now)
        for side, vector in zip(sides, now, strict=True):
            side.append(vector / vector.norm())
        old.append(then[1])
    texts = [row["target_words"] for row in rows]
    contrast = 0.0
    for own, others in (sides, sides[::-1]):
        for k, vector in enumerate(own):
            apart = [other for n, other in enumerate(others) if n == k or texts[n] != texts[k]]
            exponents = [torch.exp(vector @ other / TEMPERATURE) for other in apart]
            contrast = contrast - torch.log(torch.exp(vector @ others[k] / TEMPERATURE) / sum(exponents))
    weights = [settings.get(f"{name}_weight", 0.0) for name in ("interpolation", "sentence", "teacher")]
    loss = weights[0] * drift / len(rows) + (weights[1] * contrast + weights[2] * taught) / (2 * len(rows))
    if not (weight := settings.get("similarity_weight", 0.0)):
        return loss
    now, then = (
        [list(word_vectors(encoder, row["target_words"], "mean", "words").values()) for row in rows]
        for encoder in (model, before)
    )
    words = [[vector for text in texts for vector in text] for texts in (now, then)]
    return loss + weight * (similarities(sides[1], old) + similarities(words[0], [x.detach() for x in words[1]]))


def similarities(now, then):
    """The mean squared change of the cosines of each two vectors, divided by the variance of the cosines before."""
    total, cosines = 0.0, []
    for i in range(len(now)):
        for j in range(len(now)):
            if i != j:
                old, new = (torch.cosine_similarity(vectors[i], vectors[j], dim=0) for vectors in (then, now))
                cosines.append(old)
                total = total + (new - old) ** 2
    return total / len(cosines) / torch.stack(cosines).var(correction=0)


def mao_loop(trainer, rows, settings):
    plain = make_encoder().double().eval()
    inside = "adapters" in settings or "peft_type" in settings
    encoder = trainer.model.get_base_model() if inside else plain
    top = None if inside else find_top(trainer.model).xalign_top["default"]
    options = settings.get("pooling", "mean"), settings.get("linked_tokens", "words")

    def f(words, language):
        found = word_vectors(encoder, words, *options)
        if inside:  # the forward of the tuned encoder has all of it
            return found
        return (transformer if settings.get("top") == "transformer" else linear)(top, found, language, settings)

    return loop_loss(f, lambda words: word_vectors(plain, words, *options), rows, settings)


def perturb(model, size):
    """Move what is trained away from its start, so that every term has a value and a gradient."""
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += size * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)


def make(folder, settings, **more):
    """A trainer in float64 whose module is not at its start, and its whole data as one batch."""
    torch.manual_seed(0)
    # The paper's objective, where a test names no other.
    plain = {"objective": "l2", "regularizer_weight": 0.0, "temperature": TEMPERATURE}
    args = MAOConfig(output_dir=str(folder / "run"), use_cpu=True, **{**plain, **SMALL, **DATA, **settings, **more})
    given = {"train_dataset": make_links(4, LANGUAGES), "processing_class": make_tokenizer()}
    trainer = MAOTrainer(make_encoder().double().eval(), args, **given)
    trainer.cache_start()
    perturb(trainer.model, 0.1)
    return trainer, trainer.data_collator(list(trainer.train_dataset))


def compare(trainer, batch, expected, dtype=torch.float64):
    """Compare loss and gradients; `dtype` is that of the word vectors."""
    loss = trainer.compute_loss(trainer.model, batch)
    operations = ROUNDED if dtype == torch.float32 else STEP
    assert_rounding(loss, expected, operations, max(expected.item(), 1 / TEMPERATURE), dtype)
    found, due = (gradients(trainer.model, value) for value in (loss, expected))
    same_tensors(due, found, operations, 1 / TEMPERATURE, dtype)
    assert max(g.abs().max() for g in found.values()) > 1e-3
    return found


def assert_equals_loops(folder, settings, rows, both=True, **more):
    """With word vectors computed, and with cached ones if `both`."""
    for cached in (True, False) if both else (False,):
        trainer, batch = make(folder / str(cached), settings, feature_cache=cached, **more)
        assert ("word_vectors" in batch) == cached
        assert len(trainer.train_dataset) == len(rows)
        compare(trainer, batch, mao_loop(trainer, rows, settings), torch.float32 if cached else torch.float64)


@pytest.mark.parametrize("case", CASES)
def test_equals_loops(case, tmp_path):
    settings, pooling = CASES[case]
    assert_equals_loops(tmp_path, {**settings, "pooling": pooling}, make_links(4, LANGUAGES), case in CACHED)


@pytest.mark.parametrize("case", LINKS)
def test_batches_of_links_equal_loops(case, tmp_path):
    rows = enumerate(make_links(4, LANGUAGES))
    links = [{**row, "links": [link], "pair": number} for number, row in rows for link in row["links"]]
    assert_equals_loops(tmp_path, LINKS[case], links, batch_of="links")


@pytest.mark.parametrize("case", INSIDE)
def test_modules_in_the_layers_equal_loops(case, tmp_path):
    settings = {**INSIDE[case], "regularizer_weight": 0.7, "pooling": "last"}
    trainer, batch = make(tmp_path, settings)
    assert "word_vectors" not in batch
    compare(trainer, batch, mao_loop(trainer, make_links(4, LANGUAGES), settings))


# ---- FAO ----

# What the presets are, written down a second time.
NAMES = ("pooling", "linked_tokens", "align_target", "regularized_side", "regularized_words", "layers", "norm")
PUBLISHED = {
    "mao": ("last", "words", "tuned", "target", "linked", [4], "squared_l2", "links", False),
    "continual": ("mean", "all", "tuned", "target", "all", [4], "squared_l2", "links", False),
    "cao_code": ("last", "all", "frozen", "target", "all", [4], "squared_l2", "words", True),
    "efimov": ("mean", "all", "tuned", "target", "all_specials", [4], "squared_l2", "sub_batches", True),
    "rotate_src2tgt": ("mean", "words", "tuned", "source", "linked", [1, 2, 3, 4], "l2", "links", False),
    "rotate_tgt2src": ("mean", "words", "tuned", "target", "linked", [1, 2, 3, 4], "l2", "links", False),
    "joint": ("mean", "words", "tuned", "target", "all", [4], "relative", "words", False),
}
JOINT = {**ALL_NEGATIVES, "temperature": TEMPERATURE}
JOINT |= {"regularizer_weight": 2.0, "interpolation_weight": 5.0, "similarity_weight": 0.2}
NOTHING_KEPT = {"regularizer_weight": 0.0, "interpolation_weight": 0.0, "similarity_weight": 0.0}
# Settings next to the preset's.
SENTENCES = {
    "all terms": {**JOINT, "sentence_weight": 0.5, "teacher_weight": 2.0},
    "sentences alone": {**NOTHING_KEPT, "objective": "none", "sentence_weight": 0.5, "temperature": TEMPERATURE},
}


def make_fao(folder, preset="mao", model=None, **settings):
    """A trainer in float64 whose model has moved, and its whole data as one batch."""
    model = make_encoder(layers=4).double() if model is None else model
    trainer = fao.make(folder, model, pairs=6, preset=preset, **settings)
    trainer.cache_start()
    perturb(trainer.model, 0.05)
    return trainer, trainer.data_collator([trainer.train_dataset[k] for k in range(6)])


def compare_fao(trainer, batch, settings, options, reference):
    """Compare with the loops over words and over sentences; f0 is that of an encoder that has not moved."""
    before, model, rows = make_encoder(layers=4).double().eval(), trainer.model, make_links(6)
    expected = loop_loss(
        lambda words, _: word_vectors(model, words, *options),
        lambda words: word_vectors(before, words, *options),
        rows,
        settings,
    ) + loop_sentences(model, before, rows, settings)
    compare(trainer, batch, expected, torch.float64 if reference == "copy" else torch.float32)


@pytest.mark.parametrize("preset", sorted(FAOConfig.PRESETS))
def test_preset_of_fao_equals_loops(preset, tmp_path):
    settings = dict(zip((*NAMES, "reduction", "mean_over_dims"), PUBLISHED[preset], strict=True))
    own = JOINT if preset == "joint" else {}
    settings |= {"regularizer_weight": 1.0, **own}
    options = settings["pooling"], settings["linked_tokens"], settings["layers"]
    for reference in ("copy", "cache") if preset in ("joint", "cao_code", "rotate_src2tgt") else ("copy",):
        trainer, batch = make_fao(tmp_path, preset, dropout=False, reference=reference, **own)
        assert ("reference" in batch) == (reference == "cache")
        assert ("sentences0" in batch) == (reference == "cache" and preset == "joint")
        compare_fao(trainer, batch, settings, options, reference)


def test_efimov_drops_identical_links_and_draws_at_random(tmp_path):
    sides = {"source": [f"katze paris {k}" for k in range(8)], "target": [f"cat paris {k}" for k in range(8)]}
    rows = Dataset.from_dict({**sides, "source_lang": ["de"] * 8, "target_lang": ["en"] * 8})
    counts = {}
    for preset in ("continual", "efimov"):
        args = FAOConfig(str(tmp_path / preset), preset=preset, report_to="none", use_cpu=True)
        made = FAOTrainer(make_encoder(), args, train_dataset=rows, processing_class=make_tokenizer()).train_dataset
        counts[args.train_sampling_strategy] = {len(links) for links in made["links"]}
    assert counts == {"group_by_length": {3}, "random": {1}}
    for wrong in ({"objective": "infonce"}, {"per_device_train_batch_size": 6}, {"interpolation_weight": 1.0}):
        with pytest.raises(InputError, match="reduction=sub_batches"):
            FAOConfig(str(tmp_path), preset="efimov", **wrong)


@pytest.mark.parametrize("linked", ["words", "cls", "cls_sep"])
def test_efimov_regularizes_the_specials_that_are_not_linked(linked, tmp_path):
    """Table 7 by the published code: the linked tokens change, L_reg is always over all of the pivot's tokens."""
    settings = dict(zip((*NAMES, "reduction", "mean_over_dims"), PUBLISHED["efimov"], strict=True))
    settings |= {"regularizer_weight": 1.0, "linked_tokens": linked}
    trainer, batch = make_fao(tmp_path, "efimov", dropout=False, linked_tokens=linked)
    compare_fao(trainer, batch, settings, ("mean", "all", [4]), "copy")


@pytest.mark.parametrize("case", [*SENTENCES, "lora"])
def test_sentence_terms_equal_loops(case, tmp_path):
    settings = {"norm": "relative", "regularizer_weight": 1.0, "reduction": "words"}
    settings |= SENTENCES.get(case, SENTENCES["all terms"])
    for reference in ("copy", "cache") if case == "all terms" else ("copy",):
        model = fao.lora(layers=4).double() if case == "lora" else None
        trainer, batch = make_fao(tmp_path, "joint", model, reference=reference, **settings)
        compare_fao(trainer, batch, settings, ("mean", "words"), reference)


def test_infonce_of_fao_equals_loops(tmp_path):
    settings = {"objective": "infonce", "negatives": "all", "temperature": TEMPERATURE}
    trainer, batch = make_fao(tmp_path, projection_dim=16, **settings)
    head = trainer.model.alignment_head["align"].double()

    def f(words, language=None):
        return {word: head(x) for word, x in word_vectors(trainer.model, words, "last", "words").items()}

    found = compare(trainer, batch, loop_loss(f, f, make_links(6), settings))
    assert {"alignment_head.align.hidden.weight", "alignment_head.align.out.weight"} < set(found)
