#!/bin/sh
# predicted.sh PLAN.JSON LOG.JSONL: the step that a plan for this machine predicts against the steps that it took, the first
# aside: medians of seconds, and how much of this machine's cores its ranks had.  Where they had less than they could have used,
# the machine had other work, and seconds on cores say more.
set -eu
number() { sed -n "s/.*\"$1\": *\([0-9.eE+-]*\).*/\1/p" "$2"; }
median() { sort -g | awk '{ x[NR] = $1 } END { if (NR) print NR % 2 ? x[(NR + 1) / 2] : (x[NR / 2] + x[NR / 2 + 1]) / 2 }'; }
predicted=$(number step_time_s "$1" | head -n 1)
measured=$(number step_time_s "$2" | tail -n +2 | median)
least=$(number step_time_s "$2" | sort -g | head -n 1)
core=$(number core_s "$2" | tail -n +2 | awk '{ s += $1 } END { if (NR) print s / NR }')
echo "$predicted $measured $least ${core:-0} $(nproc) $(number step_time_s "$2" | wc -l)" | awk '{
    printf "step: predicted %.3f s, measured %.3f s (median of %d, least %.3f s): ratio %.2f\n", $1, $2, $6 - 1, $3, $1 / $2
    printf "the ranks had %.0f %% of %d cores: %.3f s of each core per step, predicted step / that: %.2f\n", 100 * $4 / $2 / $5, $5, $4 / $5, $1 * $5 / $4 }'
