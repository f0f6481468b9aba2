#!/bin/sh
# The whole way on this machine: text -> tokens; measurements -> cluster; model + cluster -> plan; plan -> timeline; plan +
# tokens -> training; what the plan predicted against what came; what the trained model writes.
#   demo.sh BUILD_FOLDER        leaves everything in BUILD_FOLDER/demo
# STEPS=60 steps of 16 sequences: half the job's batch, so that two cores are done in a few minutes.
# Text: the licences that every Debian carries in /usr/share/common-licenses, as byte-level tokens.
set -eu
build=$1 demo=$1/demo steps=${STEPS:-60}
started=$(date +%s)
rm -rf "$demo"
mkdir -p "$demo"
# print a command as one could type it, then run it
show() {
    printf '\n$'
    for word; do case $word in *' '*) printf " '%s'" "$word" ;; *) printf ' %s' "$word" ;; esac; done
    printf '\n'
    "$@"
}

for file in /usr/share/common-licenses/*; do
    [ -L "$file" ] || [ "$file" = /usr/share/common-licenses/MPL-2.0 ] || cat "$file"
done > "$demo/text.txt"
cat /usr/share/common-licenses/MPL-2.0 > "$demo/heldout.txt"
echo "text: $(wc -c < "$demo/text.txt") bytes of licences; $(wc -c < "$demo/heldout.txt") bytes (MPL-2.0) held out"

show "$build/llmc" tokens "$demo/text.txt" -o "$demo/tokens.bin"
show "$build/llmc" tokens "$demo/heldout.txt" -o "$demo/heldout.bin"
show "$build/llmrun" --calibrate --world 8 -o "$demo/machine.xml"
show "$build/llmc" plan plans/tiny-llama/model.llm "$demo/machine.xml" --set tp=2 --set pp=2 --set dp=2 \
    --set batch="16 sequences" -o "$demo/plan"
show "$build/llmc" show "$demo/plan" --timeline
show "$build/llmrun" "$demo/plan" --data "$demo/tokens.bin" --steps "$steps" --eval "$demo/heldout.bin" \
    --eval-every 20 --log "$demo/log.jsonl" --trace "$demo/trace.json" --save "$demo/weights"
echo
tests/tools/curve.sh "$demo/log.jsonl"
show "$build/llmc" diff "$demo/plan" "$demo/trace.json" | sed '/^farthest off/,$d'
tests/tools/predicted.sh "$demo/plan/plan.json" "$demo/log.jsonl"

# each token costs an evaluation of a plan's whole batch, so the model is planned once more, for one rank and a short sequence
show "$build/llmc" plan plans/tiny-llama/model.llm "$demo/machine.xml" --set gpus=1 --set tp=1 --set pp=1 --set dp=1 \
    --set batch="1 sequences" --set microbatch=1 --set sequence=64 -q -o "$demo/writer" | sed -n 1,3p
show "$build/llmrun" "$demo/writer" --init "$demo/weights" --generate "This License" --tokens 100

# against_one NAME MODEL STEPS BATCH SET...: plans for one rank and for sixteen, trains both, compares the losses; what a model
# with experts chooses on one rank is replayed
against_one() {
    name=$1 model=$2 count=$3 batch=$4 save= replay=
    shift 4
    if [ "$name" = moe ]; then
        save="--routing-save $demo/routing.bin" replay="--routing $demo/routing.bin"
    fi
    "$build/llmc" plan "$model" topologies/cpu16.xml --set tp=1 --set cp=1 --set pp=1 --set dp=1 --set ep=1 --set gpus=1 \
        --set batch="$batch" -q -o "$demo/$name-1" > /dev/null
    show "$build/llmc" plan "$model" topologies/cpu16.xml "$@" --set batch="$batch" -o "$demo/$name-16" | sed -n 1,6p
    "$build/llmrun" "$demo/$name-1" --data "$demo/tokens.bin" --steps "$count" $save --quiet --log "$demo/$name-1.jsonl"
    show "$build/llmrun" "$demo/$name-16" --data "$demo/tokens.bin" --steps "$count" $replay --log "$demo/$name-16.jsonl"
    losses "$demo/$name-1.jsonl" > "$demo/losses.1"
    losses "$demo/$name-16.jsonl" | paste "$demo/losses.1" - | awk -v steps="$count" '
        { d = $1 > $2 ? $1 / $2 - 1 : $2 / $1 - 1; most = d > most ? d : most; first = NR == 1 ? $2 : first; last = $2 }
        END { printf "loss %.4f -> %.4f in %d steps; one rank differs by at most %.1e of it\n", first, last, NR, most
              if (NR != steps || !(most < 1e-5) || !(last < first)) exit 1 }'
}
losses() {
    sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$1"
}

echo
echo "The same model with tensor, context, pipeline and data parallelism 2 each on sixteen ranks, against one rank:"
against_one dense plans/tiny-llama/model.llm 8 '4 sequences' --set tp=2 --set cp=2 --set pp=2 --set dp=2 --set microbatch=1

echo
echo "A small expert model, all five dimensions above 1 on sixteen ranks, against one rank whose choices of experts it replays:"
against_one moe plans/tiny-moe/model.llm 20 '8 sequences'

echo
echo "  plan, log and tokens are in $demo; $(( $(date +%s) - started )) s"
sed -n 's/.*"loss": *\([0-9.eE+-]*\).*/\1/p' "$demo/log.jsonl" | tail -n 10 | awk '
    { sum += $1 } END { if (!NR || !(sum / NR < 3)) { print "the loss has not fallen below 3"; exit 1 } }'
