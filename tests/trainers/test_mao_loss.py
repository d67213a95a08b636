"""MAO's losses and gradients against loops written from the formulas, in float64: every module, every objective."""

from __future__ import annotations

import math

import pytest
import torch
from support.launch import STEP, same_tensors
from support.numeric import assert_rounding
from support.tiny import make_encoder, make_links, make_tokenizer

from hf_xalign.modeling.xalign.tuner import find_top
from hf_xalign.trainers import MAOConfig, MAOTrainer

pytestmark = pytest.mark.numeric
# Cached word vectors are float32: each of the 16 numbers of both words of a difference is rounded once.
ROUNDED = 2 * 16

LANGUAGES = ["de", "nl"]
HEADS = 2
SMALL = {"num_heads": HEADS, "feedforward_size": 24, "reduction_factor": 4, "dropout": 0.0}
DATA = {"batch_of": "pairs", "regularized_words": "all"}

MODULES = {
    "identity": {},
    "random with bias": {"init": "random", "linear_bias": True},
    "map for all": {"per_language": "all"},
    "map for others": {"per_language": "others"},
    "rotation for each": {"per_language": "others", "orthogonal": True},
    "transformer": {"top": "transformer"},
    "random transformer": {"top": "transformer", "init": "random"},
    "transformer without context": {"top": "transformer", "context": False},
}
OBJECTIVES = {
    "l2": {},
    "all words kept": {"regularizer_weight": 0.7},
    "linked words kept": {"regularizer_weight": 0.7, "regularized_words": "linked"},
    "source kept": {"regularizer_weight": 0.7, "regularized_side": "source", "reduction": "words"},
    "frozen target": {"align_target": "frozen"},
    "frozen source": {"align_target": "frozen", "regularized_side": "source", "regularizer_weight": 0.5},
    "plain norm": {"norm": "l2", "regularizer_weight": 0.5},
    "sum": {"reduction": "sum", "mean_over_dims": True, "regularizer_weight": 0.5},
    "infonce": {"objective": "infonce", "negatives": "all"},
    "infonce over other sentences": {"objective": "infonce", "negatives": "other_sentences"},
    "infonce and all words kept": {"objective": "infonce", "negatives": "all", "regularizer_weight": 0.3},
    "specials linked": {"linked_tokens": "all", "regularizer_weight": 0.4},
    "cls linked": {"linked_tokens": "cls", "regularizer_weight": 0.4},
    # What a transformer sees of a sentence: its linked words, those and the special tokens, [CLS] alone.
    "words seen": {"regularized_words": "linked"},
    "specials seen": {"regularized_words": "linked", "linked_tokens": "all"},
    "cls seen": {"regularized_words": "linked", "linked_tokens": "cls"},
}
# Each once, with a pooling.
CASES = [
    ("identity", "l2", "first"),
    ("random with bias", "all words kept", "mean"),
    ("map for all", "linked words kept", "last"),
    ("map for others", "source kept", "mean"),
    ("map for others", "frozen target", "mean"),
    ("rotation for each", "frozen source", "mean"),
    ("map for others", "plain norm", "first"),
    ("map for all", "sum", "last"),
    ("map for others", "infonce", "mean"),
    ("transformer without context", "infonce over other sentences", "last"),
    ("random transformer", "infonce and all words kept", "mean"),
    ("map for others", "specials linked", "mean"),
    ("map for others", "cls linked", "first"),
    ("transformer", "all words kept", "first"),
    ("transformer without context", "all words kept", "mean"),
    ("transformer", "words seen", "mean"),
    ("transformer", "specials seen", "last"),
    ("transformer", "cls seen", "mean"),
]
INSIDE = {
    "adapterhub and transformer": {"top": "transformer", "adapters": "adapterhub"},
    "pfeiffer and linear": {"top": "linear", "adapters": "pfeiffer"},
    "houlsby": {"top": "none", "adapters": "houlsby"},
}
LINKS = {
    "linear infonce": {"per_language": "all", "objective": "infonce", "negatives": "other_sentences"},
    "transformer infonce": {"top": "transformer", "objective": "infonce", "negatives": "all"},
    "transformer kept": {"top": "transformer", "regularizer_weight": 0.4, "regularized_words": "linked"},
    "linear, frozen source": {
        "per_language": "others",
        "regularizer_weight": 0.4,
        "regularized_words": "linked",
        "regularized_side": "source",
        "align_target": "frozen",
    },
}
TEMPERATURE = 0.1


def two_languages(n=4):
    return make_links(n).map(lambda row, k: {"source_lang": LANGUAGES[k % 2]}, with_indices=True)


def token_states(encoder, words):
    """Last layer of one sentence, and the token numbers of each word."""
    encoding = make_tokenizer()(words, is_split_into_words=True, return_tensors="pt")
    owner = encoding.word_ids(0)
    return encoder(**encoding).last_hidden_state[0], [
        [k for k, w in enumerate(owner) if w == number] for number in range(len(words))
    ]


def word_vectors(encoder, words, pooling, linked_tokens):
    """{word number, "cls", "sep": vector} of one sentence, alone in its batch."""
    states, tokens = token_states(encoder, words)
    found = {}
    for number, places in enumerate(tokens):
        pieces = [states[k] for k in places]
        found[number] = {"first": pieces[0], "last": pieces[-1], "mean": sum(pieces) / len(pieces)}[pooling]
    if linked_tokens != "words":
        found["cls"], found["sep"] = states[0], states[-1]
    return found


def norm(x, weight, bias):
    centred = x - x.mean()
    return centred / torch.sqrt((centred * centred).mean() + 1e-5) * weight + bias


def attended(p, xs, number):
    """Multi-head attention's output for one word of a sentence, head by head."""
    dim = len(xs[0])
    size = dim // HEADS
    query, key, value = (
        [p["layer.self_attn.in_proj_weight"][part] @ x + p["layer.self_attn.in_proj_bias"][part] for x in xs]
        for part in (slice(0, dim), slice(dim, 2 * dim), slice(2 * dim, 3 * dim))
    )
    heads = []
    for h in range(HEADS):
        own = slice(h * size, h * size + size)
        weights = [torch.exp(query[number][own] @ k[own] / math.sqrt(size)) for k in key]
        heads.append(sum(w * v[own] for w, v in zip(weights, value, strict=True)) / sum(weights))
    joint = torch.cat(heads)
    return p["layer.self_attn.out_proj.weight"] @ joint + p["layer.self_attn.out_proj.bias"]


def transformer(p, found, settings):
    mapped = {}
    for name, x in found.items():
        seen = found if settings.get("context", True) else {name: x}
        number = list(seen).index(name)
        y = norm(x + attended(p, list(seen.values()), number), p["layer.norm1.weight"], p["layer.norm1.bias"])
        inner = torch.relu(p["layer.linear1.weight"] @ y + p["layer.linear1.bias"])
        outer = p["layer.linear2.weight"] @ inner + p["layer.linear2.bias"]
        z = norm(y + outer, p["layer.norm2.weight"], p["layer.norm2.bias"])
        mapped[name] = x + p["gate"] * (z - x) if "gate" in p else z
    return mapped


def linear(p, found, language, settings):
    if settings.get("per_language") == "others" and language == "en":
        return found
    name = f"map_{language}" if "per_language" in settings else "shared"
    if settings.get("orthogonal"):
        upper = torch.triu(p[f"{name}.skew"], diagonal=1)
        one = torch.eye(len(upper), dtype=upper.dtype)
        matrix = torch.linalg.inv(one + upper - upper.T) @ (one - upper + upper.T)
        assert_rounding(matrix @ matrix.T, one, 4 * len(one) ** 2)
    else:
        matrix = p[f"{name}.weight"]
    bias = p.get(f"{name}.bias", 0.0)
    return {word: matrix @ x + bias for word, x in found.items()}


def adapted_encoder(p, flow):
    """A plain encoder whose layers have the adapters, put there by formula."""
    encoder = make_encoder().double().eval()

    def add(place, formula):
        down, up = (
            (
                p[f"{place}.xalign_bottleneck.default.{part}.weight"],
                p[f"{place}.xalign_bottleneck.default.{part}.bias"],
            )
            for part in ("down", "up")
        )

        def bottleneck(x):
            return torch.relu(x @ down[0].T + down[1]) @ up[0].T + up[1]

        encoder.get_submodule(place).register_forward_hook(
            lambda module, args, output: formula(module, args[0], output, bottleneck)
        )

    def after_norm(module, states, output, bottleneck):
        return torch.nn.functional.layer_norm(
            states + bottleneck(output), module.normalized_shape, module.weight, module.bias, module.eps
        )

    def residual(module, states, output, bottleneck):
        return output + bottleneck(output)

    for layer in range(2):
        if flow == "adapterhub":
            add(f"encoder.layer.{layer}.output.LayerNorm", after_norm)
        else:
            add(f"encoder.layer.{layer}.output.dense", residual)
        if flow == "houlsby":
            add(f"encoder.layer.{layer}.attention.output.dense", residual)
    return encoder


def distance(a, b, settings):
    squared = ((a - b) ** 2).sum()
    if settings.get("norm") == "l2":
        return squared.sqrt()
    return squared / len(a) if settings.get("mean_over_dims") else squared


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


def loop_loss(trainer, rows, settings):
    """The whole batch's loss, one sentence and one word at a time."""
    frozen = make_encoder().double().eval()
    parameters = {
        name.removeprefix("base_model.model."): parameter for name, parameter in trainer.model.named_parameters()
    }
    flow = settings.get("adapters")
    encoder = frozen if flow is None else adapted_encoder(parameters, flow)
    top = find_top(trainer.model)
    p = {} if top is None else dict(top.xalign_top["default"].named_parameters())
    pooling, specials = settings.get("pooling", "mean"), settings.get("linked_tokens", "words")
    side = settings.get("regularized_side", "target")
    weight = settings.get("regularizer_weight", 0.0)

    def f(words, language):
        found = word_vectors(encoder, words, pooling, specials)
        if settings.get("top", "linear") == "transformer":
            return transformer(p, found, settings)
        return found if settings.get("top") == "none" else linear(p, found, language, settings)

    align, drift, links, kept = 0.0, 0.0, 0, 0
    sources, targets, owners = [], [], []
    for number, row in enumerate(rows):
        source, target = f(row["source_words"], row["source_lang"]), f(row["target_words"], "en")
        moving = source if side == "source" else target
        f0 = word_vectors(frozen, row[f"{side}_words"], pooling, specials)
        pairs = {
            "words": [tuple(link) for link in row["links"]],
            "cls": [("cls", "cls")],
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
        if settings.get("regularized_words", "all") == "linked":
            chosen = dict.fromkeys(pair[0 if side == "source" else 1] for pair in pairs)
        else:
            chosen = [word for word in f0 if not (specials == "cls" and word == "sep")]
        for word in chosen:
            kept += 1
            drift = drift + distance(moving[word], f0[word], settings)
    reduction = settings.get("reduction", "links")
    if settings.get("objective") == "infonce":
        align = contrast(sources, targets, owners, settings["negatives"], TEMPERATURE)
    else:
        align = align / (1 if reduction == "sum" else links)
    return align + weight * drift / {"sum": 1, "links": links, "words": kept}[reduction]


def make(folder, settings, **more):
    """A trainer in float64 whose module is not at its start, and its whole data as one batch."""
    torch.manual_seed(0)
    # The paper's objective, where a test names no other.
    plain = {"objective": "l2", "regularizer_weight": 0.0, "temperature": TEMPERATURE}
    args = MAOConfig(output_dir=str(folder / "run"), use_cpu=True, **{**plain, **SMALL, **DATA, **settings, **more})
    trainer = MAOTrainer(
        make_encoder().double().eval(), args, train_dataset=two_languages(), processing_class=make_tokenizer()
    )
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(parameter.shape, generator=generator, dtype=parameter.dtype)
    return trainer, trainer.data_collator(list(trainer.train_dataset))


def compare(trainer, batch, rows, settings, dtype=torch.float64):
    """Loss and gradients against the loops; `dtype` is that of the word vectors."""
    trained = {name: p for name, p in trainer.model.named_parameters() if p.requires_grad}

    def gradients(loss):
        trainer.model.zero_grad()
        loss.backward()
        return {name: p.grad.clone() for name, p in trained.items()}

    loss, expected = trainer.compute_loss(trainer.model, batch), loop_loss(trainer, rows, settings)
    operations = ROUNDED if dtype == torch.float32 else STEP
    assert_rounding(loss, expected, operations, max(expected.item(), 1 / TEMPERATURE), dtype)
    found, due = gradients(loss), gradients(expected)
    same_tensors(due, found, operations, 1 / TEMPERATURE, dtype)
    assert max(g.abs().max() for g in found.values()) > 1e-3


def assert_equals_loops(folder, settings, rows, **more):
    """With word vectors computed and cached."""
    for cached in (True, False):
        trainer, batch = make(folder / str(cached), settings, feature_cache=cached, **more)
        assert ("word_vectors" in batch) == cached
        assert len(trainer.train_dataset) == len(rows)
        compare(trainer, batch, rows, settings, torch.float32 if cached else torch.float64)


@pytest.mark.parametrize(("module", "objective", "pooling"), CASES)
def test_equals_loops(module, objective, pooling, tmp_path):
    assert_equals_loops(tmp_path, {**MODULES[module], **OBJECTIVES[objective], "pooling": pooling}, two_languages())


@pytest.mark.parametrize("case", LINKS)
def test_batches_of_links_equal_loops(case, tmp_path):
    rows = enumerate(two_languages())
    links = [{**row, "links": [link], "pair": number} for number, row in rows for link in row["links"]]
    assert_equals_loops(tmp_path, LINKS[case], links, batch_of="links")


@pytest.mark.parametrize("case", INSIDE)
def test_adapters_in_the_layers_equal_loops(case, tmp_path):
    settings = {**INSIDE[case], "regularizer_weight": 0.7}
    trainer, batch = make(tmp_path, settings)
    assert "word_vectors" not in batch
    compare(trainer, batch, two_languages(), settings)


def test_the_tuned_lora_words_meet_and_the_frozen_ones_hold(tmp_path):
    """Another PEFT method: f from its own forward, f0 from the encoder as it was."""
    settings = {"regularizer_weight": 0.6, "pooling": "last"}
    trainer, batch = make(tmp_path, settings, peft_type="lora", peft_options={"r": 2})
    loss = trainer.compute_loss(trainer.model, batch)
    tuned, frozen = trainer.model.get_base_model(), make_encoder().double().eval()
    align, drift, links = 0.0, 0.0, 0
    for row in two_languages():
        source, target = (word_vectors(tuned, row[f"{side}_words"], "last", "words") for side in ("source", "target"))
        f0 = word_vectors(frozen, row["target_words"], "last", "words")
        for i, j in row["links"]:
            align, links = align + distance(source[i], target[j], {}), links + 1
        drift = drift + sum(distance(target[word], f0[word], {}) for word in f0)
    assert drift.item() > 1e-3
    assert_rounding(loss, (align + 0.6 * drift) / links, STEP)
