#!/bin/sh
# convert-layout 0.11.1 (npm): text of Persian, Arabic and Korean keyboards becomes other letters, and nothing is said.
# It maps what was typed on one keyboard to what another has on the same keys: "ghbdtn" is "привет", and Russian is right.
# Its tables for Persian and Arabic have more letters than keys, so that from one key on each letter is that of another key.
# "sghl" is سلام (hello) in Persian, and comes out as "س`شا". "lvpfh" is مرحبا (hello) in Arabic, and comes out as "انحبل".
# Back from Persian, سلام is "sklw". In both, 15 of the 26 letters are wrong.
# In Korean, the letters that need the shift key are those without it: ㄸ is ㄷ, ㄲ is ㄱ and ㅆ is ㅅ. 딸 (daughter) is 달 (moon) then.
# Ukrainian, Hebrew and Greek are right. Queries that were typed on the wrong keyboard are corrected by such tables.
# Known in part: issue 17 of ai/convert-layout is of "sghl" in Persian, and open since 2019.
# Here: nothing, no command reads keyboards.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund convert-layout@0.11.1
cat > show.cjs <<'NODE'
// The letters on the keys from A to Z: Persian as in ISIRI 9147, Arabic as in Windows and X11 (101 keys).
const keys = "abcdefghijklmnopqrstuvwxyz";
const letters = {
  fa: ["ش", "ذ", "ز", "ی", "ث", "ب", "ل", "ا", "ه", "ت", "ن", "م", "پ", "د", "خ", "ح", "ض", "ق", "س", "ف", "ع", "ر", "ص", "ط", "غ", "ظ"],
  ar: ["ش", "لا", "ؤ", "ي", "ث", "ب", "ل", "ا", "ه", "ت", "ن", "م", "ة", "ى", "خ", "ح", "ض", "ق", "س", "ف", "ع", "ر", "ص", "ء", "غ", "ئ"],
};
for (const [name, row] of Object.entries(letters)) {
  const { fromEn } = require(`convert-layout/${name}`);
  const wrong = [...keys].filter((key, at) => fromEn(key) !== row[at]);
  console.log(name, wrong.length, wrong.join(""));
}
for (const [name, typed, meant] of [
  ["fa", "sghl", "سلام"],
  ["ar", "lvpfh", "مرحبا"],
  ["kr", "Ekf", "ㄸㅏㄹ"],
  ["kr", "ekf", "ㄷㅏㄹ"],
  ["ru", "ghbdtn", "привет"],
  ["uk", "ghbdsn", "привіт"],
  ["he", "akuo", "שלום"],
  ["gr", "kalhm;era", "καλημ΄ερα"],
]) {
  const { fromEn, toEn } = require(`convert-layout/${name}`);
  console.log(name, meant, fromEn(typed), fromEn(typed) === meant, toEn(meant), toEn(meant) === typed);
}
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
fa 15 abdghijklmqvwyz
ar 15 abdghijklmqvwyz
fa سلام س`شا false sklw false
ar مرحبا انحبل false w{pfi false
kr ㄸㅏㄹ ㄷㅏㄹ false ㄸkf false
kr ㄷㅏㄹ ㄷㅏㄹ true ekf true
ru привет привет true ghbdtn true
uk привіт привіт true ghbdsn true
he שלום שלום true akuo true
gr καλημ΄ερα καλημ΄ερα true kalhm;era true
SEEN
cmp shown seen
