"""What the encoders, modules and files of this room refuse, and in which words."""

from __future__ import annotations

import os
import re
import shutil

import torch
from peft import LoraConfig, PeftModel, PromptTuningConfig, get_peft_model
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from support.adapters import SPANS, TEXT, adapt, load_pair, make_base, make_config, save_pair, states
from support.families import CONFIGS, save_base
from support.features import cache, pairs
from support.maps import make_rotated
from support.momentum import trained_momentum
from support.refusals import assert_refused
from support.tagger import BIO, INPUTS, LABELS, make_tagger
from support.task_models import FULL, make_aligned, make_module, make_task, outputs, save_module
from support.tiny import make_encoder, make_tokenizer
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    BertForTokenClassification,
    BertModel,
    CLIPTextConfig,
    CLIPTextModel,
)

from hf_xalign.modeling import XAlignConfig, merge, set_language, with_alignment
from hf_xalign.modeling.checkpoint import load_encoder, load_weights
from hf_xalign.modeling.contrast.key_queue import KeyQueue
from hf_xalign.modeling.contrast.momentum import load_momentum, save_momentum
from hf_xalign.modeling.language_embeddings import add_language_embeddings
from hf_xalign.modeling.mlm_head import mlm_head
from hf_xalign.modeling.sentence_export import save_sentence_transformer
from hf_xalign.modeling.tagger.crf import LinearChainCRF, bio_constraint
from hf_xalign.modeling.tagger.tagger import BiLSTMCRFForTokenClassification
from hf_xalign.modeling.xalign.insertion import adopt
from hf_xalign.modeling.xalign.top import LinearTop


def unchanged(module, call):
    """Require that a call that fails leaves a module's weights and buffers."""
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    try:
        return call()
    finally:
        after = module.state_dict()
        assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def test_encoder_folders(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "adapter").mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    save_base("bert", tmp_path / "base")
    save_base("electra", tmp_path / "other")
    model = load_encoder(str(tmp_path / "base"))
    assert_refused(
        {
            "no folder": (lambda: load_encoder("nobody/nothing"), "embedded"),
            "an empty folder": (lambda: load_encoder(str(tmp_path / "empty")), "empty"),
            "an adapter": (lambda: load_encoder(str(tmp_path / "adapter")), r"holds an adapter; hf_xalign\.load"),
            "another family": (
                lambda: load_weights(model, tmp_path / "other"),
                "weights of this encoder are missing",
            ),
        }
    )


def test_language_embeddings():
    codes = ["en", "en-x-inv", "de"]

    def add(family, languages):
        return lambda: add_language_embeddings(AutoModel.from_config(CONFIGS[family]()), languages)

    assert_refused(
        {
            **{
                family: (add(family, codes), rf"\({family}\) has no token-type embeddings.*ALIGN-MLM")
                for family in ("distilbert", "modernbert")
            },
            "none": (add("bert", []), "name each language once"),
            "repeated": (add("bert", ["en", "de", "en"]), "name each language once"),
        }
    )


def test_tags_that_cannot_be_scored():
    names = ["O", "B-a", "I-a", "B-b", "I-b"]
    crf = LinearChainCRF(5, bio_constraint(names))
    mask = torch.arange(4) < torch.tensor([4, 2, 1, 0, 3])[:, None]
    fine = torch.tensor([[1, 2, 2, 0], [0, 3, 9, 9], [1, -100, -100, -100], [-100] * 4, [3, 4, 0, -100]])
    crf.check_tags(fine, mask)

    def wrong(place, tag):
        tags = fine.clone()
        tags[place] = tag
        return lambda: crf.check_tags(tags, mask)

    assert_refused(
        {
            "padding": (
                wrong((0, 1), -100),
                r"labels\[0, 1\] = -100: every word needs one of the tags 0 to 4",
            ),
            "unknown": (wrong((4, 2), 5), r"labels\[4, 2\] = 5: every word"),
            "I first": (wrong((2, 0), 4), r"labels\[2, 0\] = 4 at the start of a sentence is forbidden"),
            "I of another": (wrong((0, 3), 4), r"labels\[0, 3\] = 4 after tag 2 is forbidden.*bio=False"),
            "no B": (lambda: bio_constraint([*names[:3], "I-b"]), "tag I-b has no B-b"),
        }
    )
    fine[0, 3] = 4
    LinearChainCRF(5).check_tags(fine, mask)


def test_momentum_files(tmp_path):
    path, cut, other = (tmp_path / f"{name}.safetensors" for name in ("momentum", "cut", "other"))
    save_momentum(path, *trained_momentum())
    save_momentum(tmp_path / "more.safetensors", *trained_momentum(frozen=False))
    cut.write_bytes(path.read_bytes()[:-40])
    save_file({"a": torch.zeros(1)}, other)

    def load(file=path, **settings):
        momentum, queue = trained_momentum(**settings)
        return lambda: unchanged(momentum, lambda: unchanged(queue, lambda: load_momentum(file, momentum, queue)))

    assert_refused(
        {
            "another queue": (load(slots=6), "a queue of 5 keys of 6 numbers, here 6 of 6: go on with the settings"),
            "more layers": (load(layers=3), r"another model.* encoder\.encoder\.layer\.2.* missing there"),
            "less frozen": (load(frozen=False), r"frozen in other parts: encoder\.embeddings.* missing there"),
            "more frozen": (load(tmp_path / "more.safetensors"), r"embeddings.* missing here"),
            "cut": (load(cut), "cannot be read"),
            "no file": (load(tmp_path / "none.safetensors"), "cannot be read"),
            "another file": (load(other), "not a momentum encoder"),
        }
    )


def test_more_keys_than_slots():
    queue = KeyQueue(7, 5)
    message = r"queue_size=7: an optimizer step has 8 keys .* at least 8"
    many = {"keys": (lambda: unchanged(queue, lambda: queue.enqueue(torch.ones(8, 5), torch.arange(8))), message)}
    assert_refused(many)


def test_languages_and_words_of_modules():
    text, rows = adapt(make_base(), "languages", "random"), torch.tensor
    set_language(text, None)
    four = TEXT["attention_mask"][:, None, None, :].expand(-1, 1, 9, -1).bool()
    deleted = make_base()
    deleted.add_adapter(make_config("linear", "random"))
    deleted.delete_adapter("default")
    alone = LinearTop(5, identity=False, bias=True, orthogonal=False, languages=["de", "to"])

    def language(given):
        return lambda: states(text, language=given)

    assert_refused(
        {
            "none": (lambda: states(text), r"set_language\(model, 'de'\).*\(de, to, en\)"),
            "none of a module": (lambda: alone(torch.randn(4, 3, 5)), "no language given"),
            "unknown": (language("fr"), "language='fr': this module has maps for de, to, en"),
            "two of three": (language(["de", "to"]), "2 languages for 3 rows"),
            "number 3": (language(rows([0, 3, 1])), r"number 3; the numbers are .*'en': 0"),
            "number -1": (language(rows([0, -1, 1])), "number -1"),
            "two numbers": (language(rows([0, 1])), r"shape \(2,\) for 3 rows"),
            "set unknown": (lambda: set_language(text, "fr"), r"language='fr'.*de, to, en"),
            **{
                f"one map: {name}": (lambda model=model: set_language(model, "de"), "no maps for single languages")
                for name, model in {
                    "linear": adapt(make_base(), "linear"),
                    "houlsby": adapt(make_base(), "houlsby"),
                    "base": make_base(),
                }.items()
            },
            "a mask of four dimensions": (
                lambda: states(adapt(make_base(), "transformer", "random"), attention_mask=four),
                r"\(rows, tokens\)",
            ),
            "nothing on top": (
                lambda: adapt(make_base(), "houlsby")(word_vectors=torch.randn(3, 3, 16)),
                "no module on top",
            ),
            "deleted": (lambda: states(deleted, word_spans=SPANS), "deleted"),
        }
    )


def test_settings_of_modules():
    bad = {
        "top=mlp: choose one of linear, transformer, None": {"top": "mlp"},
        "adapters=parallel: choose one of pfeiffer, adapterhub, houlsby, None": {"adapters": "parallel"},
        "init=zeros": {"init": "zeros"},
        "pooling=max": {"pooling": "max"},
        "nothing to train": {"top": None},
        "set top=linear": {"top": "transformer", "orthogonal": True},
        "linear_bias=False": {"orthogonal": True, "linear_bias": True},
        "left as it is": {"languages": ["de", "en"], "pivot": "en"},
        "name each language once": {"languages": ["de", "de"], "pivot": "en"},
        "reduction_factor=0": {"adapters": "pfeiffer", "reduction_factor": 0},
        "num_heads=0": {"top": "transformer", "num_heads": 0},
        "dropout=1.5": {"top": "transformer", "dropout": 1.5},
    }
    assert_refused({words: (lambda given=given: XAlignConfig(**given), words) for words, given in bad.items()})


def test_modules_that_do_not_fit_the_encoder():
    bad = {
        "size 24, and BertModel has 16": {"hidden_size": 24},
        "num_heads=3 does not divide the hidden size, 16": {"top": "transformer", "num_heads": 3},
        "reduction_factor=17 leaves nothing": {"adapters": "pfeiffer", "reduction_factor": 17},
        "norms before a block, not after: use pfeiffer or houlsby": {"adapters": "adapterhub"},
    }
    table = {"merged": (lambda: adapt(make_base(), "linear").merge_and_unload(), "cannot be folded")}
    for words, given in bad.items():
        base = make_base("modernbert" if given == {"adapters": "adapterhub"} else "bert")

        def call(base=base, given=given):
            return unchanged(base, lambda: get_peft_model(base, XAlignConfig(**given)))

        table[words] = (call, words)
    assert_refused(table)


def test_adapters_that_do_not_fit(tmp_path):
    save_pair(tmp_path / "linear")
    save_pair(tmp_path / "houlsby", kind="houlsby")
    weights = load_file(tmp_path / "houlsby/adapter/adapter_model.safetensors")
    _, *others = weights
    config = CONFIGS["bert"]()
    config.hidden_size = 24

    def changed(name, new):
        folder = tmp_path / name
        shutil.copytree(tmp_path / "houlsby", folder)
        save_file(new, folder / "adapter/adapter_model.safetensors")
        return lambda: load_pair(folder)

    more = {**weights, "base_model.model.xalign.xalign_top.x": torch.ones(1)}
    wide = rf"hidden size 16, and BertModel has 24.*\({re.escape(str(tmp_path / 'linear/base'))}\)"
    assert_refused(
        {
            "hidden size": (
                lambda: PeftModel.from_pretrained(BertModel(config), tmp_path / "linear/adapter"),
                wide,
            ),
            "another family": (
                lambda: PeftModel.from_pretrained(make_base("distilbert"), tmp_path / "houlsby/adapter"),
                "another kind of encoder",
            ),
            "less": (
                changed("less", {name: weights[name] for name in others}),
                "1 missing, such as base_model.model.encoder.layer",
            ),
            "more": (changed("more", more), "1 without"),
        }
    )
    cut = {name: weight[:1].clone() for name, weight in weights.items()}
    assert_refused({"shapes": (changed("cut", cut), "size mismatch")}, error=RuntimeError)
    file = tmp_path / "linear/adapter/adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    ways = (lambda: load_pair(tmp_path / "linear"), lambda: AutoModel.from_pretrained(tmp_path / "linear/adapter"))
    assert_refused({str(way): (way, "file not fully covered") for way in ways}, error=SafetensorError)


def test_taggers():
    build = BiLSTMCRFForTokenClassification.from_encoder
    settings = {
        r"layers \[-4, -3, -2, -1\]: this encoder has layers 0 \(embeddings\) to 2": {},
        "layer_mix=mean: choose one of sum, concat": {"layers": (-1,), "layer_mix": "mean"},
        "pooling=max: choose one of first, last, mean": {"layers": (-1,), "pooling": "max"},
        "transitions=none: choose one of contextual, shared": {"layers": (-1,), "transitions": "none"},
        "dropout=1.0": {"layers": (-1,), "dropout": 1.0},
        "lstm_size=0": {"layers": (-1,), "lstm_size": 0},
        "I-c has no B-c": {"layers": (-1,), "bio": True},
    }
    base = make_base()
    table = {
        words: (lambda given=given: unchanged(base, lambda: build(base, [*BIO, "I-c"], **given)), words)
        for words, given in settings.items()
    }
    tagger, strict = make_tagger(), make_tagger(bio=True)
    forbidden = LABELS.clone()
    forbidden[0, 1] = 4
    mask = torch.ones(1, 2, dtype=torch.bool)
    task, adapted = BertForTokenClassification(make_base().config), get_peft_model(make_base(), XAlignConfig())
    vectors_or_words = "input_ids with word_spans, or inputs_vectors with word_mask"
    assert_refused(
        {
            **table,
            "one tag": (lambda: build(make_base(), ["O", "O"], layers=(-1,)), "at least two are needed"),
            "PEFT": (lambda: build(adapted, BIO, layers=(-1,)), r"by hf_xalign\.modeling\.with_alignment"),
            "task head": (lambda: build(task, BIO, layers=(-1,)), "BertForTokenClassification has a task head"),
            "no spans": (lambda: tagger(**TEXT), vectors_or_words),
            "no mask": (lambda: tagger(inputs_vectors=torch.zeros(1, 2, 16)), "inputs_vectors needs word_mask"),
            "vectors": (
                lambda: tagger(inputs_vectors=torch.zeros(1, 2, 32), word_mask=mask),
                r"inputs_vectors \(1, 2, 32\).*expected \(B, W, 16\)",
            ),
            "no label": (
                lambda: tagger(**INPUTS, labels=LABELS.masked_fill(LABELS == 4, -100)),
                r"labels\[1, 1\] = -100: every word needs",
            ),
            "labels": (
                lambda: tagger(**INPUTS, labels=LABELS[:, :2]),
                r"labels \(3, 2\): expected one for each of \(3, 3\) words",
            ),
            "not BIO": (
                lambda: strict(**INPUTS, labels=forbidden),
                r"labels\[0, 1\] = 4 after tag 1 is forbidden",
            ),
            "no language": (
                lambda: make_tagger(make_rotated(layers=(-2, -1)))(**INPUTS),
                "say which one the text is in",
            ),
        }
    )
    assert base.pooler is not None and all(p.requires_grad for p in base.parameters())
    assert tagger(**INPUTS, labels=forbidden).loss.isfinite()


def test_modules_in_task_models(tmp_path):
    wide, three_layers = CONFIGS["bert"](), CONFIGS["bert"]()
    wide.hidden_size, three_layers.num_hidden_layers = 32, 3
    encoder = AutoModel.from_config(CONFIGS["bert"]())
    get_peft_model(encoder, LoraConfig(target_modules=["query"])).save_pretrained(tmp_path / "lora")
    good = save_module(tmp_path / "good")
    for folder in ("pickled", "unknown"):
        shutil.copytree(good, tmp_path / folder)
    os.rename(tmp_path / "pickled/adapter_model.safetensors", tmp_path / "pickled/adapter_model.bin")
    text = (tmp_path / "unknown/adapter_config.json").read_text()
    (tmp_path / "unknown/adapter_config.json").write_text(text.replace("XALIGN", "NOVEL"))
    bad = {
        "hidden size 32": make_module(config=wide),
        "does not fit Bert.*missing": make_module(config=three_layers, adapters="pfeiffer", reduction_factor=4),
        "of kind LORA, not XALIGN": tmp_path / "lora",
        "a .bin is a pickle": tmp_path / "pickled",
        "NOVEL": tmp_path / "unknown",
        "nowhere: no adapter_config.json": tmp_path / "nowhere",
    }
    model = make_task()
    before = outputs(model)
    table = {
        words: (lambda given=given: unchanged(model, lambda: with_alignment(model, given)), words)
        for words, given in bad.items()
    }
    assert_refused(table)
    assert torch.equal(outputs(model), before) and all(p.requires_grad for p in model.parameters())

    make_aligned(**FULL).save_pretrained(tmp_path / "one")
    broken = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    make_module(top="transformer", num_heads=4, feedforward_size=32).save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "other/adapter_model.safetensors", tmp_path / "one")
    spoken = make_aligned(languages=["de", "bn"], pivot="en")
    set_language(spoken, None)
    aligned = with_alignment(model, good)
    assert_refused(
        {
            "no head": (lambda: with_alignment(AutoModel.from_config(CONFIGS["bert"]()), good), "has no task head"),
            "two": (lambda: with_alignment(aligned, good), "has adapters already"),
            "no language": (lambda: outputs(spoken), "say which one the text is in"),
            "no owner": (lambda: aligned.push_to_hub("aligned"), "with its owner"),
            "push": (lambda: aligned.save_pretrained(tmp_path / "x", push_to_hub=True), "uploads no adapters"),
            "damaged": (lambda: adopt(broken, tmp_path / "one"), "weights are missing"),
        }
    )


class SecondReader(torch.nn.Module):
    """A head that reads the last hidden state through something that no map can go into."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def forward(self, states):
        return torch.tanh(self.dense(states[:, 0])) + states[:, 0].abs()


def test_merging_what_is_not_exact():
    spoken = make_aligned(languages=["de", "bn"], pivot="en")
    virtual = PromptTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=2)
    second, unbiased = make_task(), make_task()
    second.bert.pooler = SecondReader(second.bert.pooler.dense)
    unbiased.bert.pooler.dense = torch.nn.Linear(16, 16, bias=False)
    bad = {
        "bare": (make_module(), None, "bare encoder ends in a layer norm"),
        "bare transformer": (
            make_module(top="transformer", num_heads=4),
            None,
            "transformer layer on top is no linear map",
        ),
        "transformer": (
            make_aligned(top="transformer", num_heads=4),
            None,
            "transformer layer on top is no linear map",
        ),
        "bottlenecks": (
            make_aligned(adapters="pfeiffer", reduction_factor=4),
            None,
            "bottleneck adapters are no linear maps",
        ),
        "plain": (make_task(), None, "no adapters"),
        "prompt": (get_peft_model(make_task(), virtual), None, "a longer input"),
        "no language": (spoken, None, r"say which map to fold in.*de, bn, en"),
        "unknown": (spoken, "fr", r"say which map to fold in.*de, bn, en"),
        "one map": (make_aligned(), "de", "one map for all languages"),
        "another reader": (with_alignment(second, make_module()), None, r"outputs differ by \d.*of the largest"),
        "half precision": (make_aligned().bfloat16(), None, r"outputs differ by \d.*of the largest"),
        "no bias": (with_alignment(unbiased, make_module()), None, "linear_bias=False"),
    }
    set_language(spoken, "de")
    kept = {name: [p.requires_grad for p in model.parameters()] for name, (model, _, _) in bad.items()}
    before = {name: outputs(bad[name][0]) for name in ("another reader", "half precision", "no bias", "unknown")}
    assert_refused(
        {
            name: (lambda m=model, given=language: unchanged(m, lambda: merge(m, language=given)), words)
            for name, (model, language, words) in bad.items()
        }
    )
    for name, (model, _, _) in bad.items():
        assert [p.requires_grad for p in model.parameters()] == kept[name], name
        assert name not in before or torch.equal(outputs(model), before[name]), name


def test_exports_for_sentence_transformers(tmp_path):
    lora = get_peft_model(make_base(), LoraConfig(target_modules=["query"], init_lora_weights=False))
    bad = {
        "PEFT": (lora, {}, "merge"),
        "PEFT inside": (lora.get_base_model(), {}, "merge"),
        "maps": (make_rotated(), {}, "map for each language"),
        "a linear map": (adapt(make_base(), "linear"), {}, "only hf_xalign loads"),
        "maps on top": (adapt(make_base(), "languages"), {}, "only hf_xalign loads"),
        "bottlenecks": (adapt(make_base(), "houlsby"), {}, "has adapters"),
        "a task head": (make_task(), {}, "task head: export its encoder, model.bert"),
        "pooling": (make_encoder(), {"pooling": "max"}, "mean or cls"),
        "too long": (make_encoder(), {"max_length": 65}, "1 to 64 tokens"),
        "too short": (make_encoder(), {"max_length": 0}, "1 to 64 tok"),
    }

    def save(folder, model=None, **options):
        return save_sentence_transformer(model or make_encoder(), make_tokenizer(), folder, **options)

    assert_refused(
        {
            name: (lambda model=model, options=options: save(tmp_path / "out", model, **options), words)
            for name, (model, options, words) in bad.items()
        }
    )
    assert list(tmp_path.iterdir()) == []
    save(tmp_path / "mine")
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    make_encoder().save_pretrained(tmp_path / "checkpoint")
    (tmp_path / "file").touch()
    kept = {path: path.read_bytes() for path in tmp_path.glob("**/*") if path.is_file()}
    occupied = {
        "mine": r"holds notes.txt, which is of no earlier export",
        "checkpoint": r"holds config.json",
        "file": "is a file",
    }
    assert_refused({name: (lambda name=name: save(tmp_path / name), words) for name, words in occupied.items()})
    assert {path: path.read_bytes() for path in tmp_path.glob("**/*") if path.is_file()} == kept


def test_encoders_without_an_mlm_head():
    untied = make_encoder()
    untied.config.tie_word_embeddings = False
    small = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    clip = CLIPTextModel(CLIPTextConfig(vocab_size=50, **small))
    assert_refused(
        {
            "untied": (lambda: mlm_head(untied), "tie_word_embeddings is false"),
            "CLIP": (lambda: mlm_head(clip), "no masked language model of type clip_text_model"),
        }
    )


def test_feature_caches(tmp_path):
    relu = make_encoder()
    relu.config.hidden_act = "relu"
    fewer = pairs().map(lambda row: {"links": row["links"][:1]})
    two = "of another encoder and another text and other settings (layers is [2] there and [1] here)"
    bad = [
        ({"model": make_encoder(seed=1)}, "of another encoder. Give", "text"),
        ({"model": relu}, "of another encoder. Give", "text"),
        ({"links": pairs(7)}, "of another text. Give", "encoder"),
        ({"pooling": "last"}, "of other settings (pooling is mean there and last here). Give", "text"),
        ({"dtype": torch.bfloat16}, "(dtype is float32 there and bfloat16 here)", "encoder"),
        ({"links": fewer}, "of other word links. Give", "settings"),
        ({"model": make_encoder(seed=1), "links": pairs(7), "layers": (1,)}, two, "links"),
    ]
    vectors, _ = cache(tmp_path)
    whole, text = vectors.path.read_bytes(), (tmp_path / "cache.json").read_text()
    assert_refused(
        {
            said: (
                lambda change=change: cache(tmp_path, **change),
                # Nothing of what is the same is named behind "holds".
                rf"{re.escape(str(tmp_path))}.*holds((?!{unsaid}).)*{re.escape(said)}((?!{unsaid}).)*remove((?!{unsaid}).)*$",
            )
            for change, said, unsaid in bad
        }
    )
    assert vectors.path.read_bytes() == whole and cache(tmp_path)[0].path == vectors.path

    def damaged(content, json_text):
        def call():
            vectors.path.write_bytes(content)
            (tmp_path / "cache.json").unlink(missing_ok=True)
            if json_text is not None:
                (tmp_path / "cache.json").write_text(json_text)
            try:
                cache(tmp_path)
            finally:
                assert vectors.path.read_bytes() == content

        return call

    sizes = {
        f"{len(content)} bytes": (
            damaged(content, text),
            rf"has {len(content):,} bytes where {len(whole):,} are due.*remove",
        )
        for content in (whole[:-1], whole + b"x", b"")
    }
    no_json = {
        "no JSON": (damaged(whole, "{"), "is no JSON"),
        "none": (damaged(whole, None), r"without the cache\.json"),
    }
    assert_refused(sizes | no_json)
