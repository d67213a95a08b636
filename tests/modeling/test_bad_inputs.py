"""What the encoders, modules and files of this room refuse, and in which words."""

import os
import shutil

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from support.adapters import TEXT, adapt, load_pair, make_base, save_pair, states
from support.families import CONFIGS, save_base
from support.refusals import assert_refused
from support.tagger import BIO
from support.task_models import FULL, make_aligned, make_module, make_task, outputs, save_module
from support.tiny import make_encoder, make_tokenizer
from transformers import (
    AutoModelForSequenceClassification,
)

from hf_xalign.errors import InputError
from hf_xalign.modeling import XAlignConfig, merge, set_language, with_alignment
from hf_xalign.modeling.checkpoint import load_trainable, load_weights
from hf_xalign.modeling.export import save_sentence_transformer
from hf_xalign.modeling.tagger import BiLSTMCRFForTokenClassification, LinearChainCRF, bio_constraint
from hf_xalign.modeling.xalign.insertion import adopt


def unchanged(module, call):
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    try:
        return call()
    finally:
        after = module.state_dict()
        assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)


def refused(*rows, error=InputError):
    assert_refused({f"{k} {message}": (call, message) for k, (call, message) in enumerate(rows)}, error=error)


def test_encoder_folders(tmp_path):
    for name in ("empty", "adapter"):
        (tmp_path / name).mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text("{}")
    save_base("bert", tmp_path / "base")
    save_base("electra", tmp_path / "other")
    model = load_trainable(str(tmp_path / "base"))
    with_alignment(make_task(), make_module()).save_pretrained(tmp_path / "task")  # with an adapter inside
    refused(
        (lambda: load_trainable("nobody/nothing"), "`builtin`"),
        (lambda: load_trainable(str(tmp_path / "empty")), "empty"),
        (lambda: load_trainable(str(tmp_path / "adapter")), r"holds an adapter\. Load it"),
        (lambda: load_trainable(str(tmp_path / "task")), "task holds a model with an adapter. Name the encoder"),
        (lambda: load_weights(model, tmp_path / "other"), "weights of this encoder are missing"),
    )


def test_tags_that_cannot_be_scored():
    crf = LinearChainCRF(5, bio_constraint(["O", "B-a", "I-a", "B-b", "I-b"]))
    mask = torch.arange(4) < torch.tensor([4, 2, 1, 0, 3])[:, None]
    fine = torch.tensor([[1, 2, 2, 0], [0, 3, 9, 9], [1, -100, -100, -100], [-100] * 4, [3, 4, 0, -100]])
    crf.check_tags(fine, mask)

    def wrong(row, word, tag):
        tags = fine.clone()
        tags[row, word] = tag
        return lambda: crf.check_tags(tags, mask)

    refused(
        (wrong(0, 1, -100), r"labels\[0, 1\] = -100: every word needs a tag from 0 to 4"),
        (wrong(4, 2, 5), r"labels\[4, 2\] = 5: every word"),
        (wrong(2, 0, 4), r"labels\[2, 0\] = 4"),
        (wrong(0, 3, 4), r"labels\[0, 3\] = 4: .*bio=True"),
    )
    fine[0, 3] = 4
    LinearChainCRF(5).check_tags(fine, mask)


def test_languages_and_words_of_modules():
    text = adapt(make_base(), "languages", "random")
    set_language(text, None)
    houlsby, transformer = (adapt(make_base(), kind) for kind in ("houlsby", "transformer"))
    four = TEXT["attention_mask"][:, None, None, :].expand(-1, 1, 9, -1).bool()

    def numbers(*given):
        return lambda: states(text, language=torch.tensor(given))

    refused(
        (lambda: states(text), r"set_language\(model, 'de'\).*\(de, to, en\)"),
        (numbers(0, 3, 1), r"unknown id 3. The ids are .*'en': 0"),
        (lambda: set_language(text, "fr"), r"language=fr.*de, to, en"),
        (lambda: set_language(houlsby, "de"), "no map per language"),
        (lambda: states(transformer, attention_mask=four), r"\(rows, tokens\)"),
    )


def test_settings_of_modules():
    def settings(**given):
        return lambda: XAlignConfig(**given)

    refused(
        (settings(languages=["de", "en"], pivot="en"), "has no map"),
        (
            lambda: adapt(make_base("modernbert"), "linear", adapters="adapterhub"),
            "norms come before a block, use pfeiffer or houlsby",
        ),
        (lambda: adapt(make_base(), "linear").merge_and_unload(), "cannot be merged"),
    )


def test_adapters_that_do_not_fit(tmp_path):
    save_pair(tmp_path / "houlsby", kind="houlsby")
    adapter = tmp_path / "houlsby" / "adapter"
    weights = load_file(adapter / "adapter_model.safetensors")
    refused((lambda: PeftModel.from_pretrained(make_base("distilbert"), adapter), "another kind of encoder"))
    weights.pop(next(iter(weights)))
    save_file(weights, adapter / "adapter_model.safetensors")
    said = "1 are missing and 0 are unknown, such as base_model.model.encoder.layer"
    refused((lambda: load_pair(tmp_path / "houlsby"), said))


def test_taggers():
    base, adapted = make_base(), get_peft_model(make_base(), XAlignConfig())

    def build(encoder=base, tags=(*BIO, "I-c"), **given):
        return lambda: BiLSTMCRFForTokenClassification.from_encoder(encoder, tags, **given)

    refused(
        (build(), r"layers \[-4, -3, -2, -1\]: .*layers 0 \(embeddings\) to 2"),
        (build(layers=(-1,), bio=True), "I-c but no B-c"),
        (build(adapted, BIO, layers=(-1,)), r"by hf_xalign\.modeling\.with_alignment"),
    )
    assert base.pooler is not None and all(p.requires_grad for p in base.parameters())


def test_modules_in_task_models(tmp_path):
    three_layers = CONFIGS["bert"]()
    three_layers.num_hidden_layers = 3
    good = save_module(tmp_path / "good")
    shutil.copytree(good, tmp_path / "pickled")
    os.rename(tmp_path / "pickled/adapter_model.safetensors", tmp_path / "pickled/adapter_model.bin")

    def insert(adapter, into=None):
        return lambda: with_alignment(into or make_task(), adapter)

    refused(
        (insert(make_module(config=three_layers, adapters="pfeiffer")), "do not fit Bert.*4 are unknown"),
        (insert(tmp_path / "pickled"), "a .bin is a pickle"),
    )

    make_aligned(**FULL).save_pretrained(tmp_path / "one")
    broken = AutoModelForSequenceClassification.from_pretrained(tmp_path / "one")
    make_module(top="transformer", num_heads=4, feedforward_size=32).save_pretrained(tmp_path / "other")
    shutil.copy(tmp_path / "other/adapter_model.safetensors", tmp_path / "one")
    aligned = with_alignment(make_task(), good)
    refused(
        (insert(good, aligned), "has adapters already"),
        (lambda: aligned.save_pretrained(tmp_path / "x", push_to_hub=True), "uploads no adapters"),
        (lambda: adopt(broken, tmp_path / "one"), "8 are missing and 0 are unknown"),
    )


class SecondReader(torch.nn.Module):
    """A head that reads the last hidden state through something that no map can go into."""

    def __init__(self, dense):
        super().__init__()
        self.dense = dense

    def forward(self, states):
        return torch.tanh(self.dense(states[:, 0])) + states[:, 0].abs()


def test_merging_what_is_not_exact():
    by_language = make_aligned(languages=["de", "bn"], pivot="en")
    second, unbiased = make_task(), make_task()
    second.bert.pooler = SecondReader(second.bert.pooler.dense)
    unbiased.bert.pooler.dense = torch.nn.Linear(16, 16, bias=False)
    set_language(by_language, "de")

    def folded(model, language=None):
        trainable, task = [p.requires_grad for p in model.parameters()], hasattr(model, "classifier")
        before = outputs(model) if task else None

        def call():
            try:
                return unchanged(model, lambda: merge(model, language=language))
            finally:
                assert [p.requires_grad for p in model.parameters()] == trainable
                assert not task or torch.equal(outputs(model), before)

        return call

    refused(
        (folded(make_module()), "bare encoder ends in a layer norm"),
        (folded(make_aligned(adapters="pfeiffer", reduction_factor=4)), "bottleneck adapters are not linear maps"),
        (folded(by_language), r"this module has a map for each language.*de, bn, en"),
        (folded(with_alignment(second, make_module())), r"outputs differ by \d.*of the largest"),
        (folded(with_alignment(unbiased, make_module())), "linear_bias=False"),
    )


def test_exports_for_sentence_transformers(tmp_path):
    lora = get_peft_model(make_base(), LoraConfig(target_modules=["query"], init_lora_weights=False))

    def save(model=None, name="out", **options):
        encoder = model or make_encoder()
        return lambda: save_sentence_transformer(encoder, make_tokenizer(), tmp_path / name, **options)

    refused((save(lora), "merge"))
    assert list(tmp_path.iterdir()) == []
