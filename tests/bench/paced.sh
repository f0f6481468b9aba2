#!/bin/sh
# Is overlap real?  Ring attention, prefetching ZeRO 3 and combined 1F1B, each against its version without overlap: simulated
# steps, and steps of `llmrun --paced`, where every kernel and transfer takes its planned time.  Both must agree within 5 %,
# and so must the gain.  With real kernels it is only reported: ranks that share cores and memory hide nothing.
#   paced.sh BUILD_FOLDER FOLDER [plan]      plan: only plans, and the overlapped one must be the faster in simulation
set -u
build=$1 work=$2 only=${3:-}
thin=tests/cases/overlap/thin.xml
dense=plans/tiny-llama/model.llm experts=plans/tiny-moe/model.llm
failed=0
mkdir -p "$work"

# number NAME FILE: the first number of that name in a JSON file
number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" "$2" | head -n 1; }
quietly() { "$@" >"$work/output" 2>&1 || { echo "failed: $*"; tail -n 5 "$work/output"; exit 1; }; }

# plan NAME MODEL LINE SET...: LINE is a line of the plan block, or nothing
plan() {
    name=$1 model=$2 line=$3
    shift 3
    sed "s/^plan {/&\n    $line/" "$model" >"$work/$name.llm"
    for set; do set -- "$@" --set "$set"; shift; done
    quietly "$build/llmc" plan "$work/$name.llm" $thin -q --force -o "$work/$name" "$@"
    simulated=$(number step_time_s "$work/$name/plan.json")
}

pace() { # simulated and measured step of the plan NAME
    quietly "$build/llmc" trace "$work/$1" --times -o "$work/$1.times"
    quietly "$build/llmrun" "$work/$1" --paced "$work/$1.times" --steps 3 --quiet --json
    number measured_step_s "$work/output"
}

real() { # least step of five with real kernels
    quietly "$build/llmrun" "$work/$1" --data "$work/tokens.bin" --steps 5 --quiet --log "$work/$1.jsonl"
    sed -n 's/.*"step_time_s": *\([0-9.eE+-]*\).*/\1/p' "$work/$1.jsonl" | sort -g | head -n 1
}

# compare WHAT: the plans `with` and `without`, whose simulated steps are given
compare() {
    if [ "$only" = plan ]; then
        echo "$1 $2 $3" | awk '{ printf "%-14s simulated %.4f s, without overlap %.4f s: %.3f\n", $1, $2, $3, $2 / $3; exit !($2 < 0.97 * $3) }' || failed=1
        return
    fi
    echo "$1 $2 $3 $(pace with) $(pace without) $(real with) $(real without)" | awk '
        function off(x, y) { return x > y ? x / y - 1 : y / x - 1 }
        { printf "%-14s %9.4f %9.4f %7.3f   %9.4f %9.4f %7.3f   %9.4f %9.4f %7.3f\n", $1, $2, $3, $2 / $3, $4, $5, $4 / $5, $6, $7, $6 / $7
          exit !(off($4, $2) < 0.05 && off($5, $3) < 0.05 && off($4 / $5, $2 / $3) < 0.05 && $2 < 0.97 * $3) }' || failed=1
}

if [ "$only" != plan ]; then
    quietly "$build/llmc" tokens tests/bench/README.md -o "$work/tokens.bin"
    printf '%-14s %27s   %27s   %27s\n' '' 'simulated' 'paced' 'real kernels'
    printf '%-14s' 's per step'
    for i in 1 2 3; do printf ' %9s %9s %7s  ' overlap without ratio; done
    echo
fi
ring="gpus=4 tp=1 pp=1 dp=1 cp=4 context=ring microbatch=2"
for wish in "never overlap [cp]:without" ":with"; do
    plan "${wish#*:}" $dense "${wish%:*}" $ring "batch=4 sequences"
    [ "${wish#*:}" = with ] || without=$simulated
done
compare ring "$simulated" "$without"
for wish in "never overlap [dp]:without" ":with"; do
    plan "${wish#*:}" $dense "${wish%:*}" gpus=4 tp=1 pp=1 dp=4 cp=1 zero=3 microbatch=4 "batch=16 sequences"
    [ "${wish#*:}" = with ] || without=$simulated
done
compare zero3 "$simulated" "$without"
for schedule in "interleaved:without" "combined_1f1b:with"; do
    plan "${schedule#*:}" $experts "" gpus=4 tp=1 cp=1 pp=2 vpp=2 dp=2 ep=2 "schedule=${schedule%:*}" "batch=16 sequences"
    [ "${schedule#*:}" = with ] || without=$simulated
done
compare combined_1f1b "$simulated" "$without"
[ $failed = 0 ] || echo "a step is more than 5 % off, or overlap gains less than 3 %"
exit $failed
