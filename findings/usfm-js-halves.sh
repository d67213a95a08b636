#!/bin/sh
# usfm-js 3.4.3 (npm): from the second half of a verse on, all text of a chapter is lost, and nothing is said.
# In USFM, a verse of two halves is "\v 4a" and "\v 4b", as where a poem or a paragraph begins in its middle.
# `toJSON` leaves out the letter, and so has verse 4 twice. It keeps no plain text of the second, nor of the verses after it, up to
# the next chapter. "\v 1,3", for verses that are translated together, is verse 1 with the text ",3 ...".
# A Bible that is written from right to left has a mark of direction in a range: "\v 1<U+200F>-2" is verse 1 with the text
# "<U+200F>-2 ...". "\v 1-2" is read rightly.
# `toUSFM` writes the shorter file. unfoldingWord's tools for Bible translation use the package.
# As parallel text, a chapter then has fewer verses in one language than in another.
# sil-machine 1.9.2 (PyPI) reads all of these.
# Known in part: issue 5391 of translationCore is of "-5a" in the text, and of the letter that is left out.
# Here: nothing, data/readers reads no USFM.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund usfm-js@3.4.3
cat > show.mjs <<'NODE'
import usfm from "usfm-js";

const files = {
  halves: "\\v 3 Three.\n\\v 4a First half.\n\\v 4b Second half.\n\\v 5 Five.\n\\v 6 Six.\n\\c 2\n\\p\n\\v 1 One.\n",
  comma: "\\v 1,3 One and three.\n\\v 2 Two.\n",
  "right to left": "\\v 1\u200f-2 One and two.\n\\v 3 Three.\n",
  range: "\\v 1-2 One and two.\n\\v 3 Three.\n",
};
for (const [name, verses] of Object.entries(files)) {
  const { chapters } = usfm.toJSON(`\\id RUT\n\\c 1\n\\p\n${verses}`);
  for (const [chapter, found] of Object.entries(chapters)) {
    for (const [verse, { verseObjects }] of Object.entries(found)) {
      const text = verseObjects.map((item) => item.text ?? "").join("");
      if (verse !== "front") console.log(`${name}: ${chapter}:${verse}`, JSON.stringify(text).replace("\u200f", "\\u200f"));
    }
  }
}
const again = usfm.toUSFM(usfm.toJSON(`\\id RUT\n\\c 1\n\\p\n${files.halves}`));
console.log(/half|Five|Six/.test(again), /Second|Five|Six/.test(again));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
halves: 1:3 "Three.\n"
halves: 1:4 " First half.\n"
halves: 2:1 "One.\n"
comma: 1:1 ",3 One and three.\n"
comma: 1:2 "Two.\n"
right to left: 1:1 "\u200f-2 One and two.\n"
right to left: 1:3 "Three.\n"
range: 1:3 "Three.\n"
range: 1:1-2 "One and two.\n"
true false
SEEN
cmp shown seen
