#!/bin/sh
# paraencoder 0.2.1 (PyPI): Burmese in Unicode is taken for Zawgyi and becomes other text, and so do Shan, Mon and Karen.
# Zawgyi is an older encoding of Burmese, with Unicode's code points for other letters. `zg_to_unicode` is to convert this alone: a
# comment in its code has "never modify non-Zawgyi input" as a guarantee.
# U+1039 before a letter is a sign of Zawgyi for it. In Unicode, this writes one letter below another, as in many words from Pali:
# မန္တလေး (Mandalay) becomes မန်တလေး, and ပစ္စည်း (thing) ပစ်စညျး. Each of 18 such words here is changed.
# Other signs are U+1060 to U+1097. Unicode has letters of Shan, Karen and Mon there: texts of these languages become no language.
# A longer text of Burmese is right where other signs outweigh these. Lists of words, names and titles are not. Nothing is said.
# myanmartools 1.2.1 gives each of these words and texts a probability of Zawgyi below 0.01, and above 0.99 for a word in Zawgyi.
# Here: nothing, no command converts encodings of fonts.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet paraencoder==0.2.1 myanmartools==1.2.1
"$folder/venv/bin/python" - <<'PYTHON'
from myanmartools import ZawgyiDetector
from para import detect_encoding, zg_to_unicode

words = """
မန္တလေး ပုဂ္ဂိုလ် ဘဏ္ဍာ ပစ္စည်း ဥက္ကဋ္ဌ နိဗ္ဗာန် ဒုက္ခသည် ဝိဇ္ဇာ သန္တာန် ကမ္ပည်း ပုဏ္ဏား ဗုဒ္ဓ သိဒ္ဓိ အန္တရာယ် သဒ္ဒါ ကုမ္ပဏီ ကဏ္ဍ သင်္ဘော
""".split()
others = {"Shan": "ၵူၼ်းၵူႈၵေႃႉ ပဵၼ်ၵူၼ်းလွတ်ႈလႅဝ်း", "Mon": "ပၠန်ဂကောံတိၟၚ်", "Karen": "ပှၤကိးဂၤဒဲးအိၣ်ဖျဲၣ်"}
detector = ZawgyiDetector()
assert all(detector.get_zawgyi_probability(text) < 0.01 for text in (*words, *others.values()))
assert detector.get_zawgyi_probability("ျမန္မာ") > 0.99 and zg_to_unicode("ျမန္မာ") == "မြန်မာ"

changed = [word for word in words if zg_to_unicode(word) != word]
print(len(words), len(changed), *map(zg_to_unicode, words))
# Seen: 18 18 မန်တလေး ပုဂ်ဂိုလျ ဘဏ်ဍာ ပစ်စညျး ဥက်ကဋ်ဌ ...
assert changed == words
assert [zg_to_unicode(word) for word in ("မန္တလေး", "ပစ္စည်း")] == ["မန်တလေး", "ပစ်စညျး"]
for name, text in others.items():
    print(name, detect_encoding(text), text, zg_to_unicode(text))
# Seen: Shan zawgyi ၵူၼ်းၵူႈၵေႃႉ ပဵၼ်ၵူၼ်းလွတ်ႈလႅဝ်း ္ဒူ္မျး္ဒူှု္ဒြှေူ ပဵ္မျ္ဒူ္မျးလှတျှုလ္လဝျး
#       Mon zawgyi ပၠန်ဂကောံတိၟၚ် ပ္ကနျဂကောံတိၟါ်ျ
#       Karen zawgyi ပှၤကိးဂၤဒဲးအိၣ်ဖျဲၣ် ပှၤကိးင်္ဂဒဲးအ္ဃိျဖြဲ္ဃျ
assert zg_to_unicode(others["Mon"]) == "ပ္ကနျဂကောံတိၟါ်ျ"
assert all(detect_encoding(text) == "zawgyi" and zg_to_unicode(text) != text for text in others.values())
PYTHON
