#!/bin/sh
# xliff 6.4.0 (npm): half of an XLIFF file's text can be lost when it is read, and nothing is said.
# In XLIFF 2, a unit holds one or more segments. xliff2js keeps the last alone, so js2xliff writes a unit of one sentence.
# In XLIFF 1.2, a group needs no `id`. xliff12ToJs leaves out all units of a group without one.
# XLIFF 2's <mrk>, around a term for instance, is lost with the words in it. In XLIFF 1.2 it is kept.
# Known in part: issue 22 of locize/xliff asks for several segments, and was closed as stale.
# Here: nothing, no command reads XLIFF. The documentation has it converted to CSV by translate-toolkit.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund xliff@6.4.0
cat > two.xlf <<'XLIFF'
<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="app"><unit id="1">
<segment><source>Save the file.</source><target>Speichern Sie die Datei.</target></segment>
<segment><source>Then close it.</source><target>Schließen Sie sie dann.</target></segment>
</unit><unit id="2">
<segment><source>Open the <mrk id="m" type="term">file</mrk>.</source><target>Öffnen Sie die <mrk id="m" type="term">Datei</mrk>.</target></segment>
</unit></file></xliff>
XLIFF
cat > one.xlf <<'XLIFF'
<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2">
<file original="app" source-language="en" target-language="de" datatype="plaintext"><body>
<group restype="menu"><trans-unit id="1"><source>Save</source><target>Speichern</target></trans-unit></group>
<trans-unit id="2"><source>Open</source><target>Öffnen</target></trans-unit>
</body></file></xliff>
XLIFF
cat > show.mjs <<'NODE'
import { readFileSync } from "node:fs";
import xliff from "xliff";

const two = await xliff.xliff2js(readFileSync("two.xlf", "utf8"));
console.log(JSON.stringify(two.resources.app));
const written = await xliff.js2xliff(two);
console.log(written.match(/<segment>/g).length, "of 3 segments");
const one = await xliff.xliff12ToJs(readFileSync("one.xlf", "utf8"));
console.log(JSON.stringify(one.resources.app));
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
{"1":{"source":"Then close it.","target":"Schließen Sie sie dann."},"2":{"source":["Open the ","","."],"target":["Öffnen Sie die ","","."]}}
2 of 3 segments
{"2":{"source":"Open","target":"Öffnen"}}
SEEN
cmp shown seen
