#!/bin/sh
# A run log's loss as a small plot.    curve.sh LOG.jsonl
set -eu
sed -n 's/.*"step": *\([0-9]*\).*"loss": *\([0-9.eE+-]*\).*/\1 \2/p' "$1" | awk '
{ n++; step[n] = $1; loss[n] = $2; if (n == 1 || $2 < low) low = $2; if (n == 1 || $2 > high) high = $2 }
END {
    width = 64; height = 14
    if (n < 2 || high <= low) { print "no curve: " n + 0 " steps"; exit 1 }
    for (i = 1; i <= n; i++) { # mean of the steps that share a column
        c = int((i - 1) * width / n)
        sum[c] += loss[i]; count[c]++
    }
    for (c = 0; c < width; c++)
        if (count[c]) row[c] = int((high - sum[c] / count[c]) * (height - 1) / (high - low) + 0.5)
    for (r = 0; r < height; r++) {
        line = ""
        for (c = 0; c < width; c++)
            line = line (count[c] && row[c] == r ? "*" : " ")
        printf "  %6.3f |%s\n", high - r * (high - low) / (height - 1), line
    }
    rule = sprintf("%" width "s", ""); gsub(/ /, "-", rule)
    printf "    loss +%s\n         step %-4d%" (width - 13) "sstep %d\n", rule, step[1], "", step[n]
    printf "  loss %.4f at step %d, %.4f at step %d\n", loss[1], step[1], loss[n], step[n]
}'
