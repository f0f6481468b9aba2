#!/bin/sh
# Tokens per second of plans/tiny-llama: llmrun against PyTorch, turn by turn on the same cores.   training.sh BUILD_FOLDER [ROUNDS]
#
# One core: one rank, and one thread.  All cores: a rank per core, the demo's eight ranks, and PyTorch with a thread per
# core.  PyTorch runs the number of sequences per forward that it likes best.  Each figure is the median over the
# rounds; ratio = llmrun / PyTorch, the median of the rounds' ratios.  "per cpu second" counts the processor time of all
# threads and processes instead of the clock (llmrun's start included): on a busy machine it is the steadier figure.
# PYTHON=VENV/bin/python chooses a Python that has PyTorch.
set -u
build=$1 rounds=${2:-3} work=$1/bench model=plans/tiny-llama/model.llm steps=4
mkdir -p "$work"
rm -f "$work/rates"
unset OPENBLAS_CORETYPE # a pin for equal bits on all machines would slow llmrun and a PyTorch on OpenBLAS
quietly() { "$@" >"$work/output" 2>&1 || { echo "failed: $*"; tail -n 5 "$work/output"; exit 1; }; }

cores=$(nproc)
for python in ${PYTHON:-python3 /usr/bin/python3} ''; do
    [ -z "$python" ] || "$python" -c 'import torch' 2>/dev/null && break
done
cat /usr/share/common-licenses/GPL-3 /usr/share/common-licenses/LGPL-2.1 /usr/share/common-licenses/MPL-1.1 > "$work/text"
quietly "$build/llmc" tokens "$work/text" -o "$work/tokens.bin"
plan() { # NAME SETTINGS...
    name=$1 && shift
    quietly "$build/llmc" plan $model topologies/cpu8.xml "$@" -o "$work/plan.$name" --force
}
plan 1rank --set gpus=1 --set tp=1 --set pp=1 --set dp=1
[ "$cores" = 1 ] || plan "${cores}ranks" --set "gpus=$cores" --set tp=1 --set pp=1 --set "dp=$cores"
plan demo

# NAME  tokens per second  tokens per second of processor time
run_torch() { # THREADS
    "$python" tests/bench/torch_tokens.py $model 2 "$1" "$microbatch" 2>"$work/output" |
        sed -n "s/.*\"tokens_per_s\": *\([0-9.]*\), *\"tokens_per_cpu_s\": *\([0-9.]*\).*/torch.$1 \1 \2/p" >> "$work/rates"
}
run_ours() { # PLAN
    ("$build/llmrun" "$work/plan.$1" --data "$work/tokens.bin" --steps $steps --log "$work/log.jsonl" >"$work/output" 2>&1; times) |
        tail -n 1 > "$work/times"
    # the log's median step, the first left out; times prints children as 1m2.34s 0m0.12s
    { cat "$work/times"; sed -n 's/.*"tokens": *\([0-9]*\).*"tokens_per_s": *\([0-9.eE+]*\).*/\1 \2/p' "$work/log.jsonl" | sed 1d | sort -gk2; } |
        awk -v name="$1" '
            NR == 1 { split($1 "m" $2, t, "[ms]"); cpu = 60 * t[1] + t[2] + 60 * t[4] + t[5]; next }
            { rate[NR - 1] = $2; tokens = $1 > tokens ? $1 : tokens }
            END { if (NR > 1) print name, rate[int(NR / 2)], tokens / cpu }' >> "$work/rates"
}

if [ -n "$python" ]; then
    found=$("$python" tests/bench/torch_tokens.py $model 1 "$cores" 2>/dev/null)
    microbatch=$(echo "$found" | sed -n 's/.*"microbatch": *\([0-9]*\).*/\1/p')
    echo "PyTorch $(echo "$found" | sed -n 's/.*"torch": *"\([^"]*\)".*/\1/p'), eager, fp32, fastest with $microbatch sequences per forward"
else
    echo "PyTorch is not installed (python3-torch): nothing to compare with"
fi
round=0
while [ $round -lt "$rounds" ]; do
    round=$((round + 1))
    for ranks in 1rank "${cores}ranks" demo; do
        [ -d "$work/plan.$ranks" ] && run_ours "$ranks"
        [ -n "$python" ] && [ "$ranks" = 1rank ] && run_torch 1
        [ -n "$python" ] && [ "$ranks" = "${cores}ranks" ] && [ "$cores" -gt 1 ] && run_torch "$cores"
    done
done
sed -n 1p "$work/output" | sed 's/^[0-9]* ranks over shm, [0-9]* steps, /llmrun: /'
awk -v cores="$cores" '
    { n[$1]++; wall[$1, n[$1]] = $2; cpu[$1, n[$1]] = $3 }
    function median(v, count,    i, j, t) {
        for (i = 1; i <= count; i++)
            for (j = i; j > 1 && v[j - 1] > v[j]; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
        return count ? (v[int((count + 1) / 2)] + v[int(count / 2) + 1]) / 2 : 0
    }
    function middle(table, name,    i, v) { for (i = 1; i <= n[name]; i++) v[i] = table[name, i]; return median(v, n[name]) }
    function ratio(table, name, other,    i, v) {
        if (!n[other]) return "-"
        for (i = 1; i <= n[name]; i++) v[i] = table[name, i] / table[other, i]
        return sprintf("%.2f", median(v, n[name]))
    }
    function line(what, name, other) {
        if (n[name])
            printf "%-44s %9.0f %9s %15.0f %9s\n", what, middle(wall, name), other ? ratio(wall, name, other) : "", middle(cpu, name), other ? ratio(cpu, name, other) : ""
    }
    END {
        printf "%-44s %9s %9s %15s %9s\n", "", "tokens/s", "ratio", "per cpu second", "ratio"
        many = cores > 1 ? cores : 1
        line("PyTorch, 1 thread", "torch.1")
        line("llmrun, 1 rank", "1rank", "torch.1")
        if (cores > 1) line("PyTorch, " cores " threads", "torch." cores)
        if (cores > 1) line("llmrun, " cores " ranks (dp " cores ")", cores "ranks", "torch." cores)
        line("llmrun, 8 ranks (tp 2, pp 2, dp 2)", "demo", "torch." many)
    }' "$work/rates"
