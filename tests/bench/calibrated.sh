#!/bin/sh
# Plans for this machine, as llmrun --calibrate has just measured it, against what llmrun then takes: PLANS drawn plans of 1 to 8
# CPU ranks, of a dense model and one with experts.  Both figures come from one run: seconds of a step (the median of five
# behind the first), and seconds on cores of all ranks, which other work on the machine does not change.  Exit status 1 where
# the median error is above 20 %: of the step, or of the seconds on cores where the ranks had less than 80 % of what the plan
# says that they use.
#   calibrated.sh BUILD_FOLDER FOLDER      PLANS=30 SEED=1
set -u
build=$1 work=$2
mkdir -p "$work"
quietly() { "$@" >"$work/output" 2>&1 || { echo "failed: $*"; tail -n 5 "$work/output"; exit 1; }; }
number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" "$2"; }
median() { sort -g | awk '{ x[NR] = $1 } END { print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }

cat tests/e2e/*.c > "$work/text"
quietly "$build/llmc" tokens "$work/text" -o "$work/tokens.bin"
quietly "$build/llmrun" --calibrate --world 8 -o "$work/machine.xml"
awk -v seed="${SEED:-1}" 'function pick(list,   n, x) { n = split(list, x, " "); return x[1 + int(rand() * n)] }
    BEGIN { srand(seed)
            for (i = 0; i < 400; i++) {
                tp = pick("1 1 2 4"); pp = pick("1 1 2 3 4"); dp = pick("1 2 3 4"); cp = pick("1 1 1 2")
                if (tp * pp * dp * cp > 8) continue
                model = pick("tiny-llama tiny-llama tiny-moe")
                line = "plans/" model "/model.llm gpus=" tp * pp * dp * cp " tp=" tp " pp=" pp " dp=" dp " cp=" cp
                line = line " zero=" pick("0 1 2") " recompute=" pick("none none full") " microbatch=" pick("1 2")
                if (model == "tiny-moe") line = line " ep=1"
                print line " batch=" pick("12 24")
            } }' > "$work/drawn"
: > "$work/errors"
done=0
printf '%-10s %9s %9s %6s   %9s %9s %6s  %s\n' '' predicted measured ratio 'on cores:' measured ratio plan
while [ $done -lt "${PLANS:-30}" ] && read -r model settings; do
    set --
    for word in $settings; do
        case $word in batch=*) set -- "$@" --set "$word sequences" ;; *) set -- "$@" --set "$word" ;; esac
    done
    "$build/llmc" plan "$model" "$work/machine.xml" -q --force -o "$work/plan" "$@" > "$work/output" 2>&1 || continue
    quietly "$build/llmrun" "$work/plan" --data "$work/tokens.bin" --steps 6 --quiet --log "$work/log.jsonl" --trace "$work/trace.json"
    quietly "$build/llmc" diff "$work/plan" "$work/trace.json" --json
    done=$((done + 1))
    echo "$(number step_time_s "$work/plan/plan.json" | head -n 1) $(number step_time_s "$work/log.jsonl" | tail -n 5 | median)" \
        "$(number planned_core_s "$work/output" | head -n 1) $(number core_s "$work/log.jsonl" | tail -n 5 | awk '{ s += $1 } END { print s / NR }')" \
        "$(basename "$(dirname "$model")") $settings" | awk -v n=$done '{
        printf "%-10d %8.4fs %8.4fs %6.2f   %8.4fs %8.4fs %6.2f ", n, $1, $2, $1 / $2, $3, $4, $3 / $4
        for (i = 5; i <= NF; i++) printf " %s", $i
        print "" }' | tee -a "$work/errors"
done < "$work/drawn"
sed 's/s / /g' "$work/errors" | awk 'function off(x) { return x > 1 ? x - 1 : 1 / x - 1 }
    { print off($4) > "'"$work/step"'"; print off($7) > "'"$work/core"'"; had += $6 / $3; could += $5 / $2 }
    END { print had / could }' > "$work/share"
echo "$(median < "$work/step") $(median < "$work/core") $(cat "$work/share") $done" | awk '{
    printf "%d plans: median error %.1f %% of the step, %.1f %% of the seconds on cores; the ranks had %.0f %% of the cores that plans use\n",
        $4, 100 * $1, 100 * $2, 100 * $3
    exit !($2 < 0.2 && ($1 < 0.2 || $3 < 0.8)) }'
