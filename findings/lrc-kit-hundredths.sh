#!/bin/sh
# lrc-kit 1.2.1 (npm): a time of lyrics with a zero behind the point is written as a time up to 0.81 seconds later.
# In LRC, the form of timed lyrics, "[00:01.05]" is 1.05 seconds. `Lrc.parse` reads it so, and `toString` writes "[00:01.50]": the
# zero is filled up at the wrong end. So it is with each time of .01 to .09, nine of a hundred. Nothing is said.
# "[00:59.999]" is written "[00:59.100]", with hundredths that are three digits, and read as 59.1.
# Lines change their order by it: a line at 1.09 comes behind one at 1.50.
# Here: nothing, no command reads subtitles.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund lrc-kit@1.2.1
cat > show.mjs <<'NODE'
import lrc from "lrc-kit";

const lyrics = lrc.Lrc.parse("[00:01.05]one\n[00:02.50]two\n[00:59.999]three\n[01:10.09]four");
console.log(lyrics.lyrics.map((line) => line.timestamp).join(" "));
const written = lyrics.toString({ lineFormat: " " });
console.log(written);
console.log(lrc.Lrc.parse(lyrics.toString()).lyrics.map((line) => line.timestamp).join(" "));
NODE
node show.mjs > found
cat found
cat > seen <<'SEEN'
1.05 2.5 59.999 70.09
[00:01.50]one [00:02.50]two [00:59.100]three [01:10.90]four
1.5 2.5 59.1 70.9
SEEN
cmp found seen
