#!/bin/sh
# hangul-romanization 1.0.1, hangul-romanize 0.3.2 and @romanize/korean 0.1.3 (npm): Korean names are not romanized by the
# Revised Romanization that their READMEs name. It follows the sounds, which change where syllables meet.
# Of 33 examples of South Korea's own text of the rules, the three write 19, 21 and 9 in another way.
# 신라 (the kingdom of Silla) is "sinra" by two of them, 종로 (Jongno, a district of Seoul) is "jongro" by all three.
# 좋고 (good, and) is "johgo" in place of "joko", and 같이 (together) "gati" in place of "gachi".
# So one name has a spelling for each package, and none finds that of maps, signs and passports. Nothing is said.
# Also wrong is nouns' ㅎ, as in 묵호 (Mukho), by the third. es-hangul 2.4.0 and koroman 1.0.16 write all but three and two.
# Known in part: issue 318 of es-hangul is of other words that it writes with an n too many.
# Here: nothing, no command romanizes.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund hangul-romanization@1.0.1 hangul-romanize@0.3.2 @romanize/korean@0.1.3 es-hangul@2.4.0 koroman@1.0.16
cat > show.cjs <<'NODE'
const words = `백마 baengma 신문로 sinmunno 종로 jongno 왕십리 wangsimni 별내 byeollae 신라 silla 학여울 hangnyeoul 알약 allyak
해돋이 haedoji 같이 gachi 굳히다 guchida 좋고 joko 놓다 nota 잡혀 japyeo 낳지 nachi 묵호 mukho 집현전 jiphyeonjeon
압구정 apgujeong 낙동강 nakdonggang 죽변 jukbyeon 낙성대 nakseongdae 합정 hapjeong 팔당 paldang 샛별 saetbyeol 울산 ulsan
구미 gumi 백암 baegam 옥천 okcheon 월곶 wolgot 벚꽃 beotkkot 설악 seorak 울릉 ulleung 대관령 daegwallyeong`.split(/\s+/);
const romanizers = {
  "hangul-romanization": require("hangul-romanization").convert,
  "hangul-romanize": (word) => require("hangul-romanize").Romanize.from(word),
  "@romanize/korean": (word) => require("@romanize/korean").romanize(word),
  "es-hangul": require("es-hangul").romanize,
  koroman: (word) => require("koroman").romanize(word),
};
for (const [name, romanize] of Object.entries(romanizers)) {
  let wrong = 0;
  for (let place = 0; place < words.length; place += 2) wrong += romanize(words[place]).toLowerCase() !== words[place + 1];
  console.log(name, wrong, "of", words.length / 2, ...["신라", "종로", "좋고", "같이", "묵호"].map(romanize));
}
NODE
node show.cjs > shown
cat shown
cat > seen <<'SEEN'
hangul-romanization 19 of 33 sinra jongro johgo gati mukho
hangul-romanize 21 of 33 sinra jongro johgo gati mukho
@romanize/korean 9 of 33 silla jongro joko gati muko
es-hangul 3 of 33 silla jongno joko gachi muko
koroman 2 of 33 silla jongno joko gachi muko
SEEN
cmp shown seen
