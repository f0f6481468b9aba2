#!/bin/sh
# All benchmarks; each prints its command and a ratio to what it is compared with in the same run.   run.sh BUILD_FOLDER
set -u
build=$1 work=$1/bench
mkdir -p "$work"
model=plans/tiny-llama/model.llm
title() { printf '\n== %s\n' "$1"; }
# a command whose output is only wanted where it fails
quietly() { "$@" >"$work/output" 2>&1 || { echo "failed: $*"; tail -n 5 "$work/output"; exit 1; }; }
# the median of a run log's tokens_per_s, without the first step
rate() { sed -n '2,$s/.*"tokens_per_s": *\([0-9.eE+]*\).*/\1/p' "$1" | sort -g | awk '{ v[NR] = $1 } END { print v[int((NR + 1) / 2)] }'; }

echo "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(uname -sr), $(date -u +%Y-%m-%d)"
echo "load before the start: $(cut -d' ' -f1-3 /proc/loadavg)"

title "compiler: seconds of each pass    $build/tests/bench/bench_compile"
"$build/tests/bench/bench_compile" "$work/cluster.xml"

title "training: tokens per second of tiny-llama"
cat /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/LGPL-2.1 /usr/share/common-licenses/MPL-1.1 > "$work/text"
quietly "$build/llmc" tokens "$work/text" -o "$work/tokens.bin"
for python in ${PYTHON:-python3 /usr/bin/python3}; do # PYTHON=VENV/bin/python chooses one that has PyTorch
    torch=$($python tests/bench/torch_tokens.py $model 3 2>/dev/null) && break
done
[ -n "$torch" ] && echo "PyTorch, eager fp32: $torch" || echo "PyTorch is not installed: nothing to compare with"
torch=$(echo "$torch" | sed -n 's/.*"tokens_per_s": *\([0-9.]*\).*/\1/p')
for layout in "gpus=1 tp=1 pp=1 dp=1" "gpus=2 tp=1 pp=1 dp=2" "gpus=8 tp=2 pp=2 dp=2"; do
    set --
    for word in $layout; do set -- "$@" --set "$word"; done
    quietly "$build/llmc" plan $model topologies/cpu8.xml "$@" -o "$work/plan" --force
    quietly "$build/llmrun" "$work/plan" --data "$work/tokens.bin" --steps 5 --log "$work/log.jsonl"
    ours=$(rate "$work/log.jsonl")
    echo "llmrun, $layout: $ours tokens/s${torch:+, ratio to PyTorch $(awk -v a="$ours" -v b="$torch" 'BEGIN { printf "%.2f", a / b }')}"
done

title "program files: encode, decode, check    $build/tests/bench/bench_program"
"$build/tests/bench/bench_program"

title "executor: ns per instruction    $build/tests/bench/bench_exec"
"$build/tests/bench/bench_exec"

title "executor: time between the kernels of a real step, one rank    llmrun --trace"
for model in tests/reference/llama/model.llm $model; do
    quietly "$build/llmc" plan "$model" topologies/cpu8.xml --set gpus=1 --set tp=1 --set pp=1 --set dp=1 -o "$work/plan" --force
    data=$work/tokens.bin
    [ "$model" = plans/tiny-llama/model.llm ] || data=tests/reference/llama/tokens.bin
    quietly "$build/llmrun" "$work/plan" --data "$data" --steps 4 --trace "$work/trace.json" --log "$work/log.jsonl"
    sed -n 's/.*"ts": *\([0-9.]*\), *"dur": *\([0-9.]*\).*/\1 \2/p' "$work/trace.json" | awk -v model="$model" '
        { n++; kernels += $2; if ($1 + $2 > end) end = $1 + $2 }
        END { printf "%s: %d instructions, %.0f us of kernels in a step of %.0f us: %.2f us between two, %.2f %% over the kernels\n",
              model, n, kernels, end, (end - kernels) / n, 100 * (end / kernels - 1) }'
done

title "collectives over shared memory against memcpy    $build/tests/bench/bench_shm"
"$build/tests/bench/bench_shm"
