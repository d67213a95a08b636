#!/bin/sh
# omninumeric 2.1.0 (PyPI): Cyrillic numbers such as 1010 do not come back as themselves, and nothing is said.
# It writes 1010 as ҂а҃і, one thousand and ten, and reads that as 11000. 9010 comes back as 19000, and 100010 as 110000.
# 20017 comes back as 27010, as the unit before і (10) counts as thousands. 1009 and 1011 are right.
# With a dot between the groups (DELIMDOT) it is the same, although the dot tells 1010 from 11000.
# The README says that both styles are read and written.
# cu-numbers 2.0.0, whose README sends its users here, reads 1010 rightly, but its own 11000 as 1010.
# Years and folios of Church Slavonic texts are numbers of this kind.
# Here: nothing, no command reads such numbers.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet omninumeric==2.1.0 cu-numbers==2.0.0
cd "$folder"
cat > show.py <<'PYTHON'
from cunumbers.cunumbers import to_arab, to_cu
from omninumeric import cyrillic

for number in (1009, 1010, 1011, 9010, 11000, 20017, 27010, 100010, 110000):
    plain, dotted, other = cyrillic.write(number), cyrillic.write(number, cyrillic.DELIM | cyrillic.DELIMDOT), to_cu(number)
    print(number, plain, cyrillic.read(plain), dotted, cyrillic.read(dotted), other, to_arab(other))
PYTHON
venv/bin/python show.py > shown
cat shown
cat > seen <<'SEEN'
1009 ҂а҃ѳ 1009 ҂а.ѳ҃ 1009 ҂а҃ѳ 1009
1010 ҂а҃і 11000 ҂а.і҃ 11000 ҂а.і҃ 1010
1011 ҂аа҃і 1011 ҂а.а҃і 1011 ҂аа҃і 1011
9010 ҂ѳ҃і 19000 ҂ѳ.і҃ 19000 ҂ѳ.і҃ 9010
11000 ҂і҂а҃ 11000 ҂а҃і 11000 ҂а҃і 1010
20017 ҂кз҃і 27010 ҂к.з҃і 27010 ҂кз҃і 20017
27010 ҂к҂з҃і 27010 ҂кз.і҃ 27010 ҂кз҃і 20017
100010 ҂р҃і 110000 ҂р.і҃ 110000 ҂р҃і 100010
110000 ҂р҂і҃ 110000 ҂р҃і 110000 ҂р҃і 100010
SEEN
cmp shown seen
