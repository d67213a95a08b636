#!/bin/sh
# @internationalized/number 3.6.9 (npm): `NumberParser` reads a Sindhi number with two decimals as a hundred times as much, and nothing
# is said. "٠.٢٥" (0.25), as Intl.NumberFormat writes it for sd, is 25. "١٬٢٣٤٬٥٦٧.٨٩" (1234567.89) is 123456789.
# CLDR writes Sindhi with Arabic digits, and with a full stop before the decimals.
# The numbers of Fulah in Adlam (ff-Adlm) and of Chakma (ccp) are NaN, whose digits lie beyond U+FFFF.
# `isValidPartialNumber` calls all of these numbers valid.
# Arabic, Persian, Urdu, Kashmiri, Punjabi in Arabic letters, Hindi, Bengali and Burmese numbers are read as they were written.
# It is what the number field of React Aria reads with, and amounts of a text differ then from those of its translation.
# The README says that decimals are supported according to the locale. Seen with Node 20.20.2, whose CLDR is version 48.
# Here: nothing, prepare/rules.py compares digits of numbers without regard to separators.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund @internationalized/number@3.6.9
cat > show.mjs <<'NODE'
import { NumberParser } from "@internationalized/number";

const options = { maximumFractionDigits: 2 };
for (const locale of ["sd", "ff-Adlm", "ccp", "ar-EG", "fa", "ur", "ks", "pa-Arab", "hi-u-nu-deva", "bn", "my"]) {
  const parser = new NumberParser(locale, options);
  for (const number of [0.25, 1234567.89, 1234567]) {
    const text = new Intl.NumberFormat(locale, options).format(number);
    console.log(locale, text, parser.parse(text), parser.isValidPartialNumber(text));
  }
}
NODE
node show.mjs > shown
cat shown
cat > seen <<'SEEN'
sd ٠.٢٥ 25 true
sd ١٬٢٣٤٬٥٦٧.٨٩ 123456789 true
sd ١٬٢٣٤٬٥٦٧ 1234567 true
ff-Adlm 𞥐.𞥒𞥕 NaN true
ff-Adlm 𞥑⹁𞥒𞥓𞥔⹁𞥕𞥖𞥗.𞥘𞥙 NaN true
ff-Adlm 𞥑⹁𞥒𞥓𞥔⹁𞥕𞥖𞥗 NaN true
ccp 𑄶.𑄸𑄻 NaN true
ccp 𑄷𑄸,𑄹𑄺,𑄻𑄼𑄽.𑄾𑄿 NaN true
ccp 𑄷𑄸,𑄹𑄺,𑄻𑄼𑄽 NaN true
ar-EG ٠٫٢٥ 0.25 true
ar-EG ١٬٢٣٤٬٥٦٧٫٨٩ 1234567.89 true
ar-EG ١٬٢٣٤٬٥٦٧ 1234567 true
fa ۰٫۲۵ 0.25 true
fa ۱٬۲۳۴٬۵۶۷٫۸۹ 1234567.89 true
fa ۱٬۲۳۴٬۵۶۷ 1234567 true
ur 0.25 0.25 true
ur 1,234,567.89 1234567.89 true
ur 1,234,567 1234567 true
ks ۰٫۲۵ 0.25 true
ks ۱٬۲۳۴٬۵۶۷٫۸۹ 1234567.89 true
ks ۱٬۲۳۴٬۵۶۷ 1234567 true
pa-Arab ۰٫۲۵ 0.25 true
pa-Arab ۱٬۲۳۴٬۵۶۷٫۸۹ 1234567.89 true
pa-Arab ۱٬۲۳۴٬۵۶۷ 1234567 true
hi-u-nu-deva ०.२५ 0.25 true
hi-u-nu-deva १२,३४,५६७.८९ 1234567.89 true
hi-u-nu-deva १२,३४,५६७ 1234567 true
bn ০.২৫ 0.25 true
bn ১২,৩৪,৫৬৭.৮৯ 1234567.89 true
bn ১২,৩৪,৫৬৭ 1234567 true
my ၀.၂၅ 0.25 true
my ၁,၂၃၄,၅၆၇.၈၉ 1234567.89 true
my ၁,၂၃၄,၅၆၇ 1234567 true
SEEN
cmp shown seen
