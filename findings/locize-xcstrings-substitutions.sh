#!/bin/sh
# locize-xcstrings 2.0.0 (npm): a text of an Apple string catalogue (.xcstrings) that has `substitutions` loses all its plurals.
# Xcode writes them where a text has two numbers: "%#@birds@ in %#@trees@". xcstrings2locize keeps this line alone, so that "bird"
# and "birds" are not translated, and are gone from the file that locize2xcstrings writes. A text with one number is kept.
# A translation in the state "needs_review" or "new" is "translated" in that file, and `shouldTranslate: false` is gone.
# Nothing is said. Its README shows texts in the state "translated" alone.
# Known in part: issue 203 of lokalise-cli-2-go is of states that another tool leaves out.
# Here: nothing, no command reads string catalogues.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund locize-xcstrings@2.0.0
cat > show.mjs <<'NODE'
import converter from "locize-xcstrings";

const unit = (value, state = "translated") => ({ stringUnit: { state, value } });
const plural = (one, other) => ({ plural: { one: unit(one), other: unit(other) } });
const birds = { argNum: 1, formatSpecifier: "lld", variations: plural("%arg bird", "%arg birds") };
const trees = { argNum: 2, formatSpecifier: "lld", variations: plural("%arg tree", "%arg trees") };
const strings = {
  birds: { localizations: { en: { ...unit("%#@birds@ in %#@trees@"), substitutions: { birds, trees } } } },
  files: { localizations: { en: { variations: plural("%lld file", "%lld files") } } },
  open: { localizations: { de: unit("Öffnen", "needs_review"), hi: unit("खोलें", "new") } },
  "%@": { shouldTranslate: false },
};
const read = converter.xcstrings2locize(JSON.stringify({ sourceLanguage: "en", version: "1.0", strings }));
console.log(Object.values(read.resources).flatMap((texts) => Object.values(texts).map((text) => text.value)).join(" | "));
const back = converter.locize2xcstrings(read);
const written = (typeof back === "string" ? JSON.parse(back) : back).strings;
console.log(JSON.stringify(written.birds.localizations.en), JSON.stringify(written["%@"]));
console.log(JSON.stringify(written.files) === JSON.stringify(strings.files));
console.log(JSON.stringify(written.open.localizations));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
%#@birds@ in %#@trees@ | %lld file | %lld files |  | Öffnen | खोलें
{"stringUnit":{"state":"translated","value":"%#@birds@ in %#@trees@"}} {}
true
{"de":{"stringUnit":{"state":"translated","value":"Öffnen"}},"hi":{"stringUnit":{"state":"translated","value":"खोलें"}}}
SEEN
cmp shown seen
