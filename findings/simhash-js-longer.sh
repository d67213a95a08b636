#!/bin/sh
# simhash-js 1.0.0 (npm): different texts of more than 512 characters get the same hash, and distances are those of other numbers.
# A text is cut into pieces of 4 characters. Of many pieces, `maxFeatures` of them, 128, "will be combined": a comment in the code
# speaks of the least ones. It takes `splice(128)`, which are all others. So of a text of 513 to 516 characters it hashes one piece.
# Of 200 random texts of English words, all different, there are 200 hashes at 512 characters each, and 16 at 516.
# `Comparator` reads the numbers that `hash` returns as if their decimal digits were hexadecimal. Of 4,950 pairs of hashes, 4 get the
# right Hamming distance, and the largest is 52, where a hash has 32 bits.
# The README compares two hashes in this way to find similar documents. Nothing is said.
# A corpus that is cleaned of near duplicates with it loses documents that are like no other, and keeps the duplicates.
# Known in part: issue 7 of simhash-js is of two sentences that are alike and get a low similarity. It names no cause.
# Here: nothing, no command looks for near duplicates by hashes of this kind.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund simhash-js@1.0.0
cat > show.cjs <<'NODE'
const { Comparator, SimHash } = require("simhash-js");

const words = "the rain falls on hills and a river carries it to the sea where ships wait for wind while people sell fish".split(" ");
let state = 7;
const random = (below) => {
  state = (state * 48271) % 2147483647;
  return state % below;
};
const text = (length) => {
  let made = "";
  while (made.length < length) made += `${words[random(words.length)]} `;
  return made.slice(0, length);
};
const simhash = new SimHash();
for (const length of [508, 512, 516, 520, 540]) {
  const texts = Array.from({ length: 200 }, () => text(length));
  const hashes = texts.map((one) => simhash.hash(one));
  console.log(`${length} characters: ${new Set(texts).size} texts, ${new Set(hashes).size} hashes`);
}

const bits = (number) => [...(number >>> 0).toString(2)].filter((bit) => bit === "1").length;
let [right, most, pairs] = [0, 0, 0];
const hashes = Array.from({ length: 100 }, () => simhash.hash(text(400)));
for (const [index, one] of hashes.entries())
  for (const other of hashes.slice(index + 1)) {
    const said = Comparator.hammingDistance(one, other);
    pairs += 1;
    right += said === bits(one ^ other);
    most = Math.max(most, said);
  }
console.log(`${pairs} pairs, ${right} with the right distance, the largest of 32 bits is ${most}`);
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
508 characters: 200 texts, 200 hashes
512 characters: 200 texts, 200 hashes
516 characters: 200 texts, 16 hashes
520 characters: 200 texts, 79 hashes
540 characters: 200 texts, 147 hashes
4950 pairs, 4 with the right distance, the largest of 32 bits is 52
SEEN
cmp shown seen
