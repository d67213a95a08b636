#!/bin/sh
# ftl-tx 0.17.0 (npm): messages of a Fluent file (.ftl) say other things after `ftlToJSON` and `JSONToFtl`, and nothing is said.
# The variant that is marked as the default by "*" is not the default any more, if it is not the last or called "other".
# Of a person whose gender is not known, "They came." becomes "She came."
# The variant of the number 1.5 becomes that of 5, and the variant "non-binary" is called "binary".
# Escapes of characters are written out: "10{"\u00A0"}km" shows "10\u00A0km". A blank at the start, {" "}, is lost.
# Fluent's guide has these escapes for characters that are hard to see, and {" "} for blanks that are to be kept.
# The README has a list of limitations, and none of these is in it. Each text here is checked by @fluent/bundle 0.19.1.
# A catalogue that goes through Transifex so changes in the language it is written in, and translations are of other texts.
# fluent-conv.sh is about another package, which loses messages.
# Here: nothing, no command reads Fluent files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund ftl-tx@0.17.0 @fluent/bundle@0.19.1
cat > messages.ftl <<'FTL'
came = { $gender ->
    [male] He came.
   *[unknown] They came.
    [female] She came.
}
who = { $gender ->
    [non-binary] They
    [female] She
   *[other] Someone
}
hours = { $count ->
    [1.5] one and a half hours
   *[other] { $count } hours
}
far = 10{"\u00A0"}km
more = {" "}and more
files = { $count ->
    [0] no file
    [one] one file
   *[other] { $count } files
}
FTL
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import { FluentBundle, FluentResource } from "@fluent/bundle";
import { JSONToFtl, ftlToJSON } from "ftl-tx";

const before = readFileSync("messages.ftl", "utf8");
const after = JSONToFtl(ftlToJSON(before), before);
const show = (text, id, values) => {
  const bundle = new FluentBundle("en", { useIsolating: false });
  bundle.addResource(new FluentResource(text));
  return JSON.stringify(bundle.formatPattern(bundle.getMessage(id).value, values)).replace("\u00a0", "<no-break blank>");
};
for (const [id, values] of [
  ["came", { gender: "unknown" }],
  ["came", { gender: "not given" }],
  ["who", { gender: "non-binary" }],
  ["hours", { count: 1.5 }],
  ["hours", { count: 5 }],
  ["far", {}],
  ["more", {}],
  ["files", { count: 0 }],
  ["files", { count: 1 }],
])
  console.log(id, show(before, id, values), show(after, id, values));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
came "They came." "They came."
came "They came." "She came."
who "They" "Someone"
hours "one and a half hours" "1.5 hours"
hours "5 hours" "one and a half hours"
far "10<no-break blank>km" "10\\u00A0km"
more " and more" "and more"
files "no file" "no file"
files "one file" "one file"
SEEN
cmp shown seen
