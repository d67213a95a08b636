"""Small monolingual texts, and the choice of sentences by a slow loop."""

import numpy as np

WORDS = ["the", "cat", "dog", "house", "open", "file", "kat", "hund", "haus", "spielen", "öffnen", "zwei"]

CONLLU = """# sent_id = 1
1-2\tdu\t_\t_\t_\t_\t_\t_\t_\t_
1\tde\tde\tADP\t_\t_\t3\tcase\t_\t_
2\tle\tle\tDET\t_\t_\t3\tdet\t_\t_
3\tpain\tpain\tNOUN\t_\t_\t0\troot\t_\t_
3.1\tvu\t_\tVERB\t_\t_\t_\t_\t_\t_

1\tOui\toui\tINTJ\t_\t_\t0\troot\t_\t_"""


def tmx(*units):
    """Return a TMX file of units, each of (language, segment) pairs."""
    variants = ["".join(f'<tuv xml:lang="{lang}"><seg>{seg}</seg></tuv>' for lang, seg in unit) for unit in units]
    body = "".join(f"<tu>{unit}</tu>" for unit in variants)
    start = '<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n'
    return f'{start}<tmx version="1.4"><header srclang="de"/><body>{body}</body></tmx>'


def random_text(sentences=40, words=12, seed=0):
    """Sentences of 1 to 8 words, some words much more frequent than others, a few repeated within a sentence."""
    rng = np.random.default_rng(seed)
    weights = 1 / np.arange(1, words + 1)
    return [
        " ".join(WORDS[i] for i in rng.choice(words, size=rng.integers(1, 9), p=weights / weights.sum()))
        for _ in range(sentences)
    ]


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
