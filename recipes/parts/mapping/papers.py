"""Papers of the mapping methods, for `results.json` and the model card."""

from __future__ import annotations

from hf_xalign.recipes.parts.mapping.arguments import MappingArguments


def _paper(title: str, identifier: str, key: str, authors: str, venue: str, year: int) -> dict[str, str]:
    fields = {"title": title, "author": authors, "booktitle": venue, "year": year}
    lines = ",\n".join(f"  {name} = {{{value}}}" for name, value in fields.items())
    return {"title": title, "id": identifier, "bibtex": f"@inproceedings{{{key},\n{lines}\n}}"}


_ROTATE = _paper(
    "Cross-lingual Alignment Methods for Multilingual BERT: A Comparative Study",
    "2020.findings-emnlp.83",
    "kulshreshtha2020crosslingual",
    "Kulshreshtha, Saurabh and Redondo-Garcia, Jose Luis and Chang, Ching-Yun",
    "Findings of the Association for Computational Linguistics: EMNLP 2020",
    2020,
)
_LEAST_SQUARES = _paper(
    "Exploiting Similarities among Languages for Machine Translation",
    "1309.4168",
    "mikolov2013exploiting",
    "Mikolov, Tomas and Le, Quoc V. and Sutskever, Ilya",
    "arXiv preprint arXiv:1309.4168",
    2013,
)
_MUSE = _paper(
    "Word Translation Without Parallel Data",
    "1710.04087",
    "conneau2018word",
    "Conneau, Alexis and Lample, Guillaume and Ranzato, Marc'Aurelio and Denoyer, Ludovic and J{\\'e}gou, Herv{\\'e}",
    "International Conference on Learning Representations",
    2018,
)
_RCSLS = _paper(
    "Loss in Translation: Learning Bilingual Word Mapping with a Retrieval Criterion",
    "D18-1330",
    "joulin2018loss",
    "Joulin, Armand and Bojanowski, Piotr and Mikolov, Tomas and J{\\'e}gou, Herv{\\'e} and Grave, Edouard",
    "Proceedings of the 2018 Conference on Empirical Methods in Natural Language Processing",
    2018,
)
_VECMAP = _paper(
    "Generalizing and Improving Bilingual Word Embedding Mappings with a Multi-Step Framework of Linear "
    "Transformations",
    "10.1609/aaai.v32i1.11992",
    "artetxe2018generalizing",
    "Artetxe, Mikel and Labaka, Gorka and Agirre, Eneko",
    "Proceedings of the AAAI Conference on Artificial Intelligence",
    2018,
)
_VECMAP_ORTHOGONAL = _paper(
    "Learning principled bilingual mappings of word embeddings while preserving monolingual invariance",
    "D16-1250",
    "artetxe2016learning",
    "Artetxe, Mikel and Labaka, Gorka and Agirre, Eneko",
    "Proceedings of the 2016 Conference on Empirical Methods in Natural Language Processing",
    2016,
)
_SELF_LEARNING = _paper(
    "A robust self-learning method for fully unsupervised cross-lingual mappings of word embeddings",
    "P18-1073",
    "artetxe2018robust",
    "Artetxe, Mikel and Labaka, Gorka and Agirre, Eneko",
    "Proceedings of the 56th Annual Meeting of the Association for Computational Linguistics",
    2018,
)


def paper_of(args: MappingArguments) -> dict[str, str]:
    """Return `title`, `id` and `bibtex` of the method's paper."""
    if args.method == "procrustes":
        return _MUSE if args.refine else _ROTATE
    if args.method == "vecmap":
        return _VECMAP if args.whiten else _VECMAP_ORTHOGONAL
    return {"least_squares": _LEAST_SQUARES, "rcsls": _RCSLS, "self_learning": _SELF_LEARNING}[args.method]
