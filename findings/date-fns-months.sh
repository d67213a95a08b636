#!/bin/sh
# date-fns 4.4.0 (npm): `parse` reads dates that its own `format` wrote in the same language as dates of other months.
# In Armenian, each day of June and July becomes one of January: "1 հունիս 2024" (June) is 2024-01-01.
# In Kazakh, June is May, and September to November are January. In Sorani Kurdish, January and September to November are December.
# In West Frisian, May is March, and in Scottish Gaelic the short name of December is October.
# In Mongolian, the short names of October to December, such as "10-р сар", are January.
# Nothing is said. The month is found by its first letters, in a list whose first fit counts.
# moment 2.31.0 reads its dates in Armenian, Kazakh, Mongolian and Frisian as it wrote them.
# Known in part: pull request 4325 of date-fns is of Frisian, and others are of names that give an invalid date.
# Here: nothing, no command reads dates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund date-fns@4.4.0 moment@2.31.0
cat > show.mjs <<'NODE'
import { format, parse } from "date-fns";
import { ckb, fr, fy, gd, hy, kk, mn } from "date-fns/locale";
import moment from "moment/min/moment-with-locales.js";

const languages = [["hy", hy, "MMMM"], ["kk", kk, "MMMM"], ["ckb", ckb, "MMMM"], ["fy", fy, "MMMM"], ["gd", gd, "MMM"], ["mn", mn, "MMM"], ["fr", fr, "MMMM"]];
for (const [code, locale, name] of languages) {
  const found = [];
  for (let month = 0; month < 12; month++) {
    const text = format(new Date(2024, month, 1), `d ${name} yyyy`, { locale });
    const read = parse(text, `d ${name} yyyy`, new Date(2000, 0, 1), { locale });
    if (!isNaN(read) && read.getMonth() !== month) found.push(`${month + 1} as ${read.getMonth() + 1}`);
  }
  console.log(code, found.join(", "));
}
let others = 0;
for (const code of ["hy-am", "kk", "mn", "fy"]) {
  for (let month = 0; month < 12; month++) {
    const text = moment(new Date(2024, month, 1)).locale(code).format("D MMMM YYYY");
    others += moment(text, "D MMMM YYYY", code).month() !== month;
  }
}
console.log("moment", others);
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
hy 6 as 1, 7 as 1
kk 6 as 5, 9 as 1, 10 as 1, 11 as 1
ckb 1 as 12, 9 as 12, 10 as 12, 11 as 12
fy 5 as 3
gd 12 as 10
mn 10 as 1, 11 as 1, 12 as 1
fr 
moment 0
SEEN
cmp shown seen
