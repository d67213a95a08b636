"""Translation memories (TMX 1.1 to 1.4), read as a stream: memory does not grow with the file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO
from xml.etree.ElementTree import Element

from defusedxml.common import DefusedXmlException
from defusedxml.ElementTree import ParseError, iterparse

from hf_xalign.errors import InputError

_LANG_ATTRIBUTES = ("{http://www.w3.org/XML/1998/namespace}lang", "lang")  # TMX 1.1 wrote plain `lang`
_CODES = {"bpt", "ept", "ph", "it", "ut"}  # elements of a segment that hold a format's markup, not text


def read_tmx(stream: IO[bytes], path: Path, source_lang: str, target_lang: str) -> Iterator[tuple[int, str, str]]:
    """Yield `(unit, source, target)` of every unit that has both languages, counting units from 1.

    A language matches its whole tag first, then its primary subtag: `de` matches `de-AT` if there is no plain `de`.
    """
    unit, found = 0, False
    seen: set[str] = set()
    try:
        events = iterparse(stream, events=("start", "end"))
        _, root = next(events)
        for event, element in events:
            if event != "end" or element.tag != "tu":
                continue
            unit += 1
            segments = _segments(element)
            seen |= segments.keys()
            source, target = _pick(segments, source_lang), _pick(segments, target_lang)
            if source is not None and target is not None:
                found = True
                yield unit, source, target
            element.clear()
            for body in root:
                body.clear()  # finished units, though empty, would pile up
    except ParseError as error:
        raise InputError(f"{path}: not well-formed XML ({error})") from error
    except DefusedXmlException as error:
        raise InputError(
            f"{path}: declares XML entities, which could exhaust memory. Remove its DTD ({error})."
        ) from error
    except (LookupError, ValueError) as error:
        raise InputError(f"{path}: its encoding cannot be read ({error}). Save it as UTF-8.") from error
    except RecursionError as error:
        raise InputError(f"{path}: unit {unit} has elements nested too deeply ({error})") from error
    if not found:
        there = ", ".join(sorted(seen)) or "none"
        raise InputError(f"{path}: no unit has both {source_lang!r} and {target_lang!r}; its languages: {there}")


def _segments(unit: Element) -> dict[str, str]:
    """Return `{language tag in lower case: text}` of one unit; the first variant of a tag counts."""
    segments: dict[str, str] = {}
    for variant in unit.iter("tuv"):
        tag = next((variant.attrib[name] for name in _LANG_ATTRIBUTES if name in variant.attrib), "")
        segment = variant.find("seg")
        if segment is not None:
            segments.setdefault(tag.lower().replace("_", "-"), _text(segment))
    return segments


def _text(segment: Element) -> str:
    """Return the segment's text without the markup of its original format."""
    parts = [segment.text or ""]
    for child in segment:
        if child.tag not in _CODES:
            parts.append(_text(child))
        parts.append(child.tail or "")
    return "".join(parts)


def _pick(segments: dict[str, str], language: str) -> str | None:
    wanted = language.lower().replace("_", "-")
    if wanted in segments:
        return segments[wanted]
    return next((text for tag, text in segments.items() if tag.split("-")[0] == wanted.split("-")[0]), None)
