#!/bin/sh
# babelcode 0.1.1: `normalize` names a script that the language code does not stand for, and says nothing.
# zh-TW becomes cmn_Hant (traditional), but zh_TW and zh-HK become cmn_Hans (simplified). So `build_mapping` pairs zh_TW with
# zho_Hans although zho_Hant is among the targets. "Traditional Chinese" becomes yue_Hant, which is Cantonese.
# kk, pa and uz become kaz_Arab, pan_Arab and uzn_Cyrl, also kk-KZ and pa-IN: the first script that its data call canonical.
# CLDR's likely scripts are Hant for Taiwan and Hong Kong, and Cyrl, Guru and Latn. langcodes 3.5.1 finds these.
# So data of one script are labelled as another, and the label kaz_Arab finds nothing where kaz_Cyrl is meant.
# Its README says that the canonical script is taken, and names no choice between two of them.
# Here: nothing, language_codes.py takes CLDR's likely scripts from Babel.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet babelcode==0.1.1 langcodes==3.5.1
"$folder/venv/bin/python" - <<'PYTHON'
from babelcode import BabelCode
from langcodes import Language

codes = BabelCode()
for code, seen, likely in (
    ("zh-TW", "cmn_Hant", "Hant"),
    ("zh_TW", "cmn_Hans", "Hant"),
    ("zh-HK", "cmn_Hans", "Hant"),
    ("kk", "kaz_Arab", "Cyrl"),
    ("kk-KZ", "kaz_Arab", "Cyrl"),
    ("pa-IN", "pan_Arab", "Guru"),
    ("uz", "uzn_Cyrl", "Latn"),
    ("sr", "srp_Cyrl", "Cyrl"),
):
    found = codes.normalize(code), Language.get(code).maximize().script
    print(code, *found)
    assert found == (seen, likely), found

name = codes.normalize("Traditional Chinese")
mapping = codes.build_mapping(["zh_TW", "zh-TW"], ["zho_Hans", "zho_Hant"])
print(name, mapping)
# Seen: yue_Hant {'zh_TW': 'zho_Hans', 'zh-TW': 'zho_Hant'}
assert name == "yue_Hant"
assert mapping == {"zh_TW": "zho_Hans", "zh-TW": "zho_Hant"}
PYTHON
