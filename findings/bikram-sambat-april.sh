#!/bin/sh
# bikram-sambat-js 1.0.3 (npm): `ADToBS` gives dates of April another day of the Nepali calendar, and nothing is said.
# In a leap year, 1 to 12 April are a day too early: 31 March and 1 April 2024 are both the 18th of Chaitra 2080.
# In the year after one, 1 to 13 April are a day too late: 1 April 2021 is the 20th of Chaitra 2077, and not the 19th.
# From 2000 to 2024 these are 162 days, in 13 of 25 years. Two other packages agree with each other on all 9,132 days.
# `BSToAD` of the same package is right: 2080-12-19 is 2024-04-01, which goes back to 2080-12-18.
# The new year is on 13 or 14 April, so the last days of the year are met. Nepali texts, and names of their files, have such dates.
# The README has both conversions, and no limit.
# Here: nothing, no command reads dates.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund bikram-sambat-js@1.0.3 bikram-sambat@1.8.1 nepali-date-converter@3.4.0
cat > show.cjs <<'NODE'
process.env.TZ = "Asia/Kathmandu";
const { toBik_euro } = require("bikram-sambat");
const { ADToBS, BSToAD } = require("bikram-sambat-js");
const { default: NepaliDate } = require("nepali-date-converter");

let [days, agreed, back] = [0, 0, 0];
const wrong = {};
for (let time = Date.UTC(2000, 0, 1); time < Date.UTC(2025, 0, 1); time += 86400000) {
  const date = new Date(time).toISOString().slice(0, 10);
  const [year, month, day] = date.split("-").map(Number);
  const right = toBik_euro(date);
  days += 1;
  agreed += new NepaliDate(new Date(year, month - 1, day)).format("YYYY-MM-DD") === right;
  back += BSToAD(right) === date;
  if (ADToBS(date) !== right) (wrong[year] ??= []).push(date.slice(5));
}
console.log(days, agreed, back, Object.values(wrong).flat().length);
for (const [year, dates] of Object.entries(wrong)) console.log(year, dates.length, dates[0], dates.at(-1));
for (const date of ["2024-03-31", "2024-04-01", "2021-03-31", "2021-04-01"]) console.log(date, ADToBS(date), toBik_euro(date));
console.log(BSToAD("2080-12-19"), ADToBS(BSToAD("2080-12-19")));
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
9132 9132 9132 162
2000 12 04-01 04-12
2001 13 04-01 04-13
2004 12 04-01 04-12
2005 13 04-01 04-13
2008 12 04-01 04-12
2009 13 04-01 04-13
2012 12 04-01 04-12
2013 13 04-01 04-13
2016 12 04-01 04-12
2017 13 04-01 04-13
2020 12 04-01 04-12
2021 13 04-01 04-13
2024 12 04-01 04-12
2024-03-31 2080-12-18 2080-12-18
2024-04-01 2080-12-18 2080-12-19
2021-03-31 2077-12-18 2077-12-18
2021-04-01 2077-12-20 2077-12-19
2024-04-01 2080-12-18
SEEN
cmp shown seen
