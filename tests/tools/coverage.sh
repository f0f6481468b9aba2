#!/bin/sh
# Lines that tests have run, per file, the least covered first, and per folder.    coverage.sh BUILD_FOLDER [FILE...]
# Those that none has run are marked ##### in BUILD_FOLDER/lines/FILE.gcov.  Processes that are killed, or end without
# exit(), as ranks do, leave no counts.
set -u
build=$1
shift
mkdir -p "$build/lines"
for file in "${@:-compiler/*/*.c runtime/*.c}"; do
    for f in $file; do
        gcov -t -o "$build/${f%.c}.o" "$f" 2>/dev/null >"$build/lines/gcov" || continue
        sed -n "/Source:$(echo "$f" | tr / .)\$/,/Source:.*\.h\$/p" "$build/lines/gcov" >"$build/lines/$(echo "$f" | tr / -).gcov"
        awk -v f="$f" '/^ *#####:/ {missed++} /^ *[0-9]+\*?:/ {run++}
            END {if (run + missed) printf "%6.2f %% of %5d  %s\n", 100 * run / (run + missed), run + missed, f}' \
            "$build/lines/$(echo "$f" | tr / -).gcov"
    done
done | sort -n >"$build/lines/table"
cat "$build/lines/table"
awk '{n = split($5, p, "/"); folder = n > 2 ? p[1] "/" p[2] : p[1]; all[folder] += $4; run[folder] += $1 * $4 / 100}
     END {for (f in all) printf "%6.2f %% of %5d  %s/\n", 100 * run[f] / all[f], all[f], f}' "$build/lines/table" | sort -n
