#!/bin/sh
# @formkit/tempo 1.1.0 (npm): `parse` reads a date that `format` wrote in the same language as one of the month that it is today.
# With the form "D MMMM YYYY", it is so for each date in Russian, Ukrainian, Belarusian, Polish, Slovak, Croatian, Lithuanian and
# Finnish, and for all months but September in Czech. In March, "23 января 2024" (January) is 2024-03-23. Nothing is said.
# Next to a day, these languages write the month in another case than alone. `parse` knows the form alone, and fills a month
# that it does not know with today's. In Chinese (this form) and Korean (the style "long") it is so as well.
# English, German, French, Turkish, Greek, Hungarian and Bulgarian dates come back as they were.
# So the dates of a text depend on the day of the run, and match none of its translation.
# The documentation has `parse` take a locale, and names no language that is left out. A form that does not fit is an error.
# Known in part: issue 1 of tempo is of texts in a language that `parse` was not told.
# Here: nothing, no command reads dates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund @formkit/tempo@1.1.0
cat > show.mjs <<'NODE'
// Let today be 5 March 2030, so that the output is the same on each day.
const RealDate = Date;
globalThis.Date = class extends RealDate {
  constructor(...parts) {
    parts.length ? super(...parts) : super(2030, 2, 5, 10);
  }
};
const { format, parse } = await import("@formkit/tempo");

for (const [form, languages] of [
  ["D MMMM YYYY", ["ru", "uk", "be", "pl", "sk", "hr", "lt", "fi", "cs", "zh", "en", "de", "fr", "tr", "el", "hu", "bg"]],
  ["long", ["ko", "ja", "ru"]],
]) {
  for (const language of languages) {
    const months = Array.from({ length: 12 }, (_, month) => {
      const text = format(new Date(2024, month, 23, 12), form, language);
      return parse(text, form, language).getMonth() + 1;
    });
    console.log(form, language, months.join(" "));
  }
}
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
D MMMM YYYY ru 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY uk 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY be 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY pl 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY sk 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY hr 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY lt 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY fi 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY cs 3 3 3 3 3 3 3 3 9 3 3 3
D MMMM YYYY zh 3 3 3 3 3 3 3 3 3 3 3 3
D MMMM YYYY en 1 2 3 4 5 6 7 8 9 10 11 12
D MMMM YYYY de 1 2 3 4 5 6 7 8 9 10 11 12
D MMMM YYYY fr 1 2 3 4 5 6 7 8 9 10 11 12
D MMMM YYYY tr 1 2 3 4 5 6 7 8 9 10 11 12
D MMMM YYYY el 1 2 3 4 5 6 7 8 9 10 11 12
D MMMM YYYY hu 1 2 3 4 5 6 7 8 9 10 11 12
D MMMM YYYY bg 1 2 3 4 5 6 7 8 9 10 11 12
long ko 3 3 3 3 3 3 3 3 3 3 3 3
long ja 1 2 3 4 5 6 7 8 9 10 11 12
long ru 1 2 3 4 5 6 7 8 9 10 11 12
SEEN
cmp shown seen
