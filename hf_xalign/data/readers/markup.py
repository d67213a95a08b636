"""Read translation memories (TMX 1.1 to 1.4), and test sets of WMT in SGML or XML."""

from __future__ import annotations

import html
import logging
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from xml.etree.ElementTree import Element

import regex
from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, iterparse

from hf_xalign.data.readers.files import Rows, open_bytes, read_lines
from hf_xalign.errors import InputError
from hf_xalign.language_codes import closest_language, find_language

logger = logging.getLogger(__name__)

_SEGMENT = re.compile(
    r"<doc\b(?=(?:[^>]*\bsysid=[\"'](?P<system>[^\"']*))?)[^>]*?\b(?:docid|id)=[\"'](?P<document>[^\"']*)"
    r"|<(?P<side>src|ref|hyp)\b[^>]*?(?:\blang(?:uage)?=[\"'](?P<lang>[^\"']*)|>)"
    r"|<seg\b[^>]*?\bid=[\"'](?P<number>[^\"']*)[^>]*>(?P<text>.*?)</seg>",
    re.S | re.I,
)


def read_segments(path: Path) -> Iterator[tuple[str, str, str, str, str]]:
    """Yield document, side, language, number and text of each segment of WMT's SGML or XML.

    Files of one side have no sides; of several translations of a document, by their `sysid`, the first is read. In
    other files, a second reference or system of a document has the side "".
    """
    document, side, lang, sides = "", "", "", set[str]()
    systems, is_first = dict[str, str | None](), True
    for match in _SEGMENT.finditer("\n".join(line for _, line in read_lines(path))):
        if match["document"] is not None:
            document, sides = match["document"], set()
            is_first = systems.setdefault(document, match["system"]) == match["system"]
        elif match["side"]:
            side, lang = match["side"] if match["side"] not in sides else "", match["lang"] or ""
            sides.add(match["side"])
        elif is_first:
            yield document, side, lang, match["number"], html.unescape(match["text"]).strip()


def read_test_set(path: Path) -> Rows:
    """Yield the segments of WMT's XML of source and references, each with the first reference of its document."""
    segments: dict[tuple[str, str], dict[str, str]] = {}
    languages: dict[str, str] = {}
    for document, side, lang, number, text in read_segments(path):
        languages.setdefault(side, lang)
        segments.setdefault((document, number), {})[side] = text
    if not (pairs := [segment for segment in segments.values() if {"src", "ref"} <= segment.keys()]):
        raise InputError(f"{path}: no test set of WMT with <src> and <ref>. Name the files of both sides: A.xml,B.xml")
    if len(pairs) < len(segments):
        logger.warning("%s: %s of %s segments lack a side", path, len(segments) - len(pairs), len(segments))
    said = {"source_lang": languages["src"], "target_lang": languages["ref"]}
    for row, pair in enumerate(pairs, 1):
        yield row, {"source": pair["src"], "target": pair["ref"], **said}


_LANG = "{http://www.w3.org/XML/1998/namespace}lang"
# Elements of a segment that hold markup, not text, and the characters that stand for them until blanks are decided.
_CODES = {"bpt": "\x01", "ept": "\x02", "ph": "\x03", "it": "\x03", "ut": "\x03"}
_BREAK = "\x04"  # stands for a line break
_IS_BREAK = regex.compile(r"(?:x-)?(?:html-)?(?:lb|pb|br|line-?break)|\s*(?:<br\b[^>]*>|\\[nr]|\n)\s*", regex.I)
UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]"  # no blanks between words
_BEFORE, _AFTER = r"[\p{L}\p{M}\p{N}\p{Pe}\p{Pf}.,;:!?…।؟،؛]", r"[\p{L}\p{N}\p{Ps}\p{Pi}¿¡]"
# Markup of a hot key, of an index, or inside a word.
_INSIDE_WORD = regex.compile(r"\x01+(\w)\x02+|(?<=[\w\p{M}])\x01+([\w\p{M}]+)\x02+(?=\w)")
_PARTING = regex.compile(
    rf"(?<={_BEFORE})(?<!{UNSPACED})[\x01-\x03]+(?={_AFTER})(?!{UNSPACED})|\s*[\x01-\x04]*[\x04\r\n][\x01-\x04\s]*"
)
_MARKUP = regex.compile(r"[\x01-\x03]")


def read_tmx(path: Path, source_lang: str | None, target_lang: str) -> Rows:
    """Stream the units of a translation memory (TMX 1.1 to 1.4) that have both languages."""
    if source_lang is None:
        raise InputError(f"{path}: a TMX file can hold many languages. Name one by source_lang=, or write de={path}.")
    units = nested = pairs = 0
    seen, away = set[str](), Counter[tuple[str, str]]()
    try:
        for count, texts in _units(path):
            units += count
            nested += count if count > 1 else 0
            segments = {find_language(tag) or tag: text for tag, text in texts.items()}
            seen |= segments.keys()
            tags = tuple(segments)
            # `pt` means `pt-BR`, and takes `pt-PT` only in a unit without a closer variant. The log says how often.
            source, target = closest_language(source_lang, tags), closest_language(target_lang, tags)
            if source and target and source[0] != target[0]:
                pairs += 1
                away[source_lang, source[0]] += not source[1]
                away[target_lang, target[0]] += not target[1]
                yield units, {"source": segments[source[0]], "target": segments[target[0]]}
    # Also if the caller stops after the first pairs.
    finally:
        for (asked, tag), count in (+away).items():
            logger.warning("%s: %s of %s pairs have %s for %s", path, f"{count:,}", f"{pairs:,}", tag, asked)
        if nested:
            logger.warning("%s: %s units inside one another are left out", path, f"{nested:,}")
        if pairs + nested < units:
            lacking = (
                f"{units - pairs - nested:,} of {units:,} units are rejected, or lack {source_lang} or {target_lang}"
            )
            logger.info("%s: %s, and are left out; the file has %s", path, lacking, ", ".join(sorted(seen)))
    if not pairs:
        has = ", ".join(sorted(seen)) or "none"
        raise InputError(f"{path}: no unit has both {source_lang!r} and {target_lang!r}. Its languages are {has}.")


def _units(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield 1 and the texts of each unit, none of a rejected one; of units inside one another, their number."""
    depth = units = 0
    with open_bytes(path) as stream:
        try:
            events = iterparse(stream, events=("start", "end"))
            _, root = next(events)
            for event, element in events:
                if _tag(element) != "tu":
                    continue
                depth += 1 if event == "start" else -1
                if depth:
                    continue
                # Converters of many-to-one links write one unit inside another.
                count = sum(_tag(inner) == "tu" for inner in element.iter())
                units += count
                # Trados writes `RejectedTranslation`.
                rejected = any((prop.text or "").startswith("Rejected") for prop in element.iterfind(".//{*}prop"))
                yield count, _segments(element) if count == 1 and not rejected else {}
                element.clear()
                # Otherwise empty units would pile up in memory.
                for body in root:
                    body.clear()
        except (DefusedXmlException, LookupError, ParseError, RecursionError, ValueError) as error:
            fault = f"this XML cannot be read after unit {units} ({type(error).__name__}: {error})"
            raise InputError(f"{path}: {fault}. Save it as well-formed XML in UTF-8, without entities.") from error


def _tag(element: Element) -> str:
    # ElementTree writes a namespace in braces before the name.
    return element.tag.rpartition("}")[2]


def _segments(unit: Element) -> dict[str, str]:
    """Return `{language tag: text}` of one unit, with the first variant of each tag, without markup of its format."""
    segments: dict[str, str] = {}
    for variant in unit.iterfind("{*}tuv"):
        tag = variant.get(_LANG, variant.get("lang", ""))  # TMX 1.1 wrote plain `lang`
        segment = variant.find("{*}seg")
        if segment is not None and tag not in segments:
            # Markup around one character or inside a word, such as of a hot key, leaves no blank. A line break becomes
            # one, and so does other markup between two words, unless their script has no blanks.
            text = _INSIDE_WORD.sub(r"\1\2", _with_codes(segment))
            segments[tag] = _MARKUP.sub("", _PARTING.sub(" ", text))
    return segments


def _with_codes(element: Element) -> str:
    """Return the text of an element with a control character (which XML cannot contain) for each inline code."""
    texts = [element.text or ""]
    for child in element:
        content = "".join(child.itertext())
        if _IS_BREAK.fullmatch(child.get("type", "")) or (_IS_BREAK.fullmatch(content or _tag(child))):
            texts.append(_BREAK)
        elif code := _CODES.get(_tag(child), "" if content else _CODES["ph"]):
            texts.append(code)
        else:
            texts.append(_with_codes(child))
        texts.append(child.tail or "")
    return "".join(texts)
