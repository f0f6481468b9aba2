#!/bin/sh
# The whole way on this machine: text -> tokens; model + cluster -> plan; plan -> timeline; plan + tokens -> training.
#   demo.sh BUILD_FOLDER        leaves everything in BUILD_FOLDER/demo
# Text: the licences that every Debian carries and the copyright files of its packages, byte-level tokens.
set -eu
build=$1 demo=$1/demo steps=${STEPS:-150}
started=$(date +%s)
rm -rf "$demo"
mkdir -p "$demo"
show() { printf '\n$ %s\n' "$*"; "$@"; }

# MPL-2.0 is held out; beyond the licences at most 1 MB, so that every machine trains about as long
cat /usr/share/common-licenses/MPL-2.0 > "$demo/heldout.txt"
for file in /usr/share/common-licenses/*; do
    [ -L "$file" ] || [ "$file" = /usr/share/common-licenses/MPL-2.0 ] || cat "$file"
done > "$demo/text.txt"
find /usr/share/doc -name copyright -type f 2>/dev/null | LC_ALL=C sort | xargs cat 2>/dev/null | head -c 1000000 >> "$demo/text.txt" || :
echo "text: $(wc -c < "$demo/text.txt") bytes of licences and copyright files; $(wc -c < "$demo/heldout.txt") held out"

show "$build/llmc" tokens "$demo/text.txt" -o "$demo/tokens.bin"
show "$build/llmc" tokens "$demo/heldout.txt" -o "$demo/heldout.bin"
show "$build/llmc" plan plans/tiny-llama/model.llm topologies/cpu8.xml --set tp=2 --set pp=2 --set dp=2 -o "$demo/plan"
show "$build/llmc" show "$demo/plan" --timeline
show "$build/llmrun" "$demo/plan" --data "$demo/tokens.bin" --steps "$steps" --eval "$demo/heldout.bin" \
    --eval-every 50 --log "$demo/log.jsonl"
echo
tests/tools/curve.sh "$demo/log.jsonl"

last=$(sed -n 's/.*"step": *[0-9]*.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$demo/log.jsonl" | tail -n 1)
echo "  plan, log and tokens are in $demo; $(( $(date +%s) - started )) s"
awk -v last="$last" 'BEGIN { if (!(last < 3)) { print "the loss has not fallen below 3: " last; exit 1 } }'
