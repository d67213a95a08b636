#!/bin/sh
# fast-plural-rules 2.0.2 (npm): the names of the plural forms of Lithuanian are swapped, and others are not those of CLDR.
# In CLDR, "few" is the form of 2 to 9 (failai, files), and "other" that of 0 and 10 to 20 (failų). Here, 2 is "other" and 0 is "few".
# Of the numbers 0 to 200, 183 get the form of another. Messages in ICU's form and i18next's JSON are written with CLDR's names.
# In Polish, Russian, Ukrainian and Belarusian, 5 is "other" in place of "many". That is the form of fractions: Polish has then
# "5 pliku" in place of "5 plików". In Filipino, 2 is "other", where CLDR has "one" for all numbers that do not end in 4, 6 or 9.
# The README says that all six names are supported, and that its results are compared with Mozilla's rules. These have numbers alone.
# A catalogue of translations, read as parallel text with these names, has the wrong form beside each number. Nothing is said.
# Intl.PluralRules of Node 20 has CLDR's names. Czech, Arabic and Slovenian agree with it.
# Here: nothing, no command chooses plural forms.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund fast-plural-rules@2.0.2
cat > show.mjs <<'NODE'
import * as rules from "fast-plural-rules";

for (const language of ["lt", "pl", "ru", "uk", "be", "fil", "cs", "ar", "sl"]) {
  const names = new Intl.PluralRules(language);
  const wrong = [...Array(201).keys()].filter(
    (number) => rules.getPluralFormNameForCardinalByLocale(language, number) !== names.select(number),
  );
  const shown = wrong.filter((number) => [0, 2, 5].includes(number)).map(
    (number) => `${number} ${rules.getPluralFormNameForCardinalByLocale(language, number)}, not ${names.select(number)}`,
  );
  console.log([language, wrong.length, shown.join("; ")].join(" ").trim());
}
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
lt 183 0 few, not other; 2 other, not few; 5 other, not few
pl 146 0 other, not many; 5 other, not many
ru 129 0 other, not many; 5 other, not many
uk 129 0 other, not many; 5 other, not many
be 129 0 other, not many; 5 other, not many
fil 139 2 other, not one; 5 other, not one
cs 0
ar 0
sl 0
SEEN
cmp shown seen
