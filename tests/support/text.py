"""Small texts of one language and of two, and the choice of sentences by a slow loop."""

import numpy as np
from datasets import Dataset

WORDS = ["the", "cat", "dog", "house", "open", "file", "kat", "hund", "haus", "spielen", "öffnen", "zwei"]

CONLLU = """# sent_id = 1
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_
2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_
3\tpain\tpain\tNOUN\t_\t_\t0\troot\t_\t_
3.1\tvu\t_\tVERB\t_\t_\t_\t_\t_\t_

1\tOui\toui\tINTJ\t_\t_\t0\troot\t_\t_"""


def tmx(*units):
    variants = ["".join(f'<tuv xml:lang="{lang}"><seg>{seg}</seg></tuv>' for lang, seg in unit) for unit in units]
    body = "".join(f"<tu>{unit}</tu>" for unit in variants)
    start = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    return f'{start}<tmx version="1.4"><header srclang="de"/><body>{body}</body></tmx>'


def bitext(*rows, langs=("de",)):
    """Pairs of a text and its translation into English; the languages take turns."""
    source, target = (list(side) for side in zip(*rows, strict=True))
    codes = {"source_lang": [langs[k % len(langs)] for k in range(len(rows))], "target_lang": ["en"] * len(rows)}
    return Dataset.from_dict({"source": source, "target": target, **codes})


def letters(count, start=0):
    return " ".join(chr(ord("a") + (start + k) % 26) for k in range(count))


def sized(*sizes, langs=("de",)):
    return bitext(*((letters(s, k), letters(t, k + 5)) for k, (s, t) in enumerate(sizes)), langs=langs)


def random_text(sentences=40, seed=0):
    """Sentences of 1 to 8 words, some words much more frequent than others, a few repeated within a sentence."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, len(WORDS) + 1)
    return [" ".join(rng.choice(WORDS, size=rng.integers(1, 9), p=weights / weights.sum())) for _ in range(sentences)]


def slow_cover(sentences, per_word):
    """Numbers of the chosen sentences (sets of words), ascending."""
    total = {word: sum(word in sentence for sentence in sentences) for word in set().union(*sentences)}
    chosen = {k for k, sentence in enumerate(sentences) if any(total[word] <= per_word for word in sentence)}

    def lacking(sentence):
        return sum(sum(word in sentences[c] for c in chosen) < min(per_word, total[word]) for word in sentence)

    while True:
        gains = [0 if k in chosen else lacking(sentence) for k, sentence in enumerate(sentences)]
        if not any(gains):
            return sorted(chosen)
        chosen.add(gains.index(max(gains)))
