#!/bin/sh
# fluent_conv 3.3.0 (npm): a Fluent file (.ftl) that is read and written again loses messages, and nothing is said.
# Fluent's guide chooses a form by a term's attribute, as in "{ -brand.gender -> ...}", for languages with gender. It becomes
# "{ ${ -brand } -> ...}", which is no Fluent: the message is gone for every reader.
# A brace is written { "{" } in Fluent, and becomes a plain one: a variable, or an error. A letter written { "\u017C" } becomes
# "\u017C", which Fluent shows as these six characters, and a quotation mark gets a backslash that is shown.
# A comment that stands alone becomes a message named "comment", with its text to translate.
# A text that begins with blanks, after { "" } as the guide has it, loses them.
# A translation memory of such a file has escapes for letters. The README names no syntax that is left out.
# @fluent/bundle 0.19.1 shows the messages before and after.
# Here: nothing, no command reads Fluent files.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund fluent_conv@3.3.0 @fluent/bundle@0.19.1 @fluent/syntax@0.19.0
cat > show.mjs <<'NODE'
import { FluentBundle, FluentResource } from "@fluent/bundle";
import { parse } from "@fluent/syntax";
import converter from "fluent_conv";

const before = `-brand = Aurora
    .gender = feminine
updated = { -brand.gender ->
    [feminine] { -brand } została zaktualizowana.
   *[other] { -brand } został zaktualizowany.
}
blank = { "" }    indented
braces = Use { "{" }name{ "}" } here
letter = { "\\u017C" }ółw
quote = Say { "\\"yes\\"" }

# Nobody uses the rest.

last = Koniec
`;
const after = converter.js2ftl(converter.ftl2js(before));
for (const text of [before, after]) {
  console.log(parse(text, { withSpans: false }).body.map(({ type, id }) => (id ? id.name : type)).join(" "));
  const bundle = new FluentBundle("pl", { useIsolating: false });
  bundle.addResource(new FluentResource(text));
  for (const name of ["updated", "blank", "braces", "letter", "quote", "last", "comment"]) {
    const message = bundle.getMessage(name);
    const errors = [];
    console.log(name, message ? JSON.stringify(bundle.formatPattern(message.value, {}, errors)) : "none", ...errors.map(String));
  }
}
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
brand updated blank braces letter quote Comment last
updated "Aurora została zaktualizowana."
blank "    indented"
braces "Use {name} here"
letter "żółw"
quote "Say \"yes\""
last "Koniec"
comment none
brand Junk blank braces letter quote comment last
updated none
blank "indented"
braces "Use {name} here" ReferenceError: Unknown message: name
letter "\\u017Cółw"
quote "Say \\\"yes\\\""
last "Koniec"
comment "Nobody uses the rest."
SEEN
cmp shown seen
