#!/bin/sh
# All benchmarks; each prints its command and a ratio to what it is compared with in the same run.   run.sh BUILD_FOLDER
set -u
build=$1 work=$1/bench
mkdir -p "$work"
model=plans/tiny-llama/model.llm
title() { printf '\n== %s\n' "$1"; }
# a command whose output is only wanted where it fails
quietly() { "$@" >"$work/output" 2>&1 || { echo "failed: $*"; tail -n 5 "$work/output"; exit 1; }; }

echo "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1), $(nproc) cores, $(uname -sr), $(date -u +%Y-%m-%d)"
echo "load before the start: $(cut -d' ' -f1-3 /proc/loadavg)"

title "compiler: seconds of each pass    $build/tests/bench/bench_compile"
"$build/tests/bench/bench_compile" "$work/cluster.xml"

title "pipelines: bounds and runs of actions per second    $build/tests/bench/bench_pipeline"
"$build/tests/bench/bench_pipeline"

title "pipelines: synthesised schedules against formulas and bounds    $build/tests/bench/bench_auto"
"$build/tests/bench/bench_auto"

title "search: large jobs on one core    $build/tests/bench/bench_search"
"$build/tests/bench/bench_search"

title "transitions between large plans    $build/tests/bench/bench_transition"
"$build/tests/bench/bench_transition"

title "training: tokens per second of tiny-llama against PyTorch    tests/bench/training.sh $build"
tests/bench/training.sh "$build"

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

title "overlap: simulated, paced and real steps with and without it    tests/bench/paced.sh $build $work/paced"
tests/bench/paced.sh "$build" "$work/paced"

title "this machine: predicted against measured steps of drawn plans    tests/bench/calibrated.sh $build $work/calibrated"
tests/bench/calibrated.sh "$build" "$work/calibrated"

title "collectives over shared memory against memcpy    $build/tests/bench/bench_shm"
"$build/tests/bench/bench_shm"

title "long runs: deaths, standstills, checkpoints    tests/bench/lasting.py --build $build"
python3 tests/bench/lasting.py --build "$build"
