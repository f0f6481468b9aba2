#!/bin/sh
# Which lines the tests run of what reads input and of what checks plans: per file, the least covered first, and per
# group.    coverage.sh BUILD_FOLDER SUITE...
# Runs the suites, two at a time.  Exit 1 where one fails or a group has less than GOAL of its lines run, but for the
# saver, of which it depends on when ranks are stopped.  Lines that none has run are marked ##### in
# BUILD_FOLDER/lines/FILE.gcov.  Processes that are killed leave no counts.
set -u
GOAL=95
build=$1
shift
lines=$build/lines
rm -rf "$lines" && mkdir -p "$lines"
find "$build" -name '*.gcda' -delete
export GCOV_ERROR_FILE=$lines/gcov.errors # of children that may write no files
printf '%s\n' "$@" | LLMC_BUILD=$build LLMC_QUICK=1 xargs -P 2 -I SUITE sh -c \
    "\$LLMC_BUILD/tests/run =SUITE >$lines/SUITE.log 2>&1 || { echo 'SUITE failed, see $lines/SUITE.log'; exit 1; }"
failed=$?

# group and files
cat >"$lines/groups" <<EOF
grammar grammar/llm.y grammar/llm.l
language $(echo compiler/model/*.c | sed 's,compiler/model/decision[a-z_]*.c,,g')
cluster $(echo compiler/topology/topo*.c) compiler/topology/hostlist.c
program-text runtime/program_text.c runtime/program_words.c
plan.json compiler/emit/plan_read.c compiler/model/decision_io.c compiler/schedule/csv.c runtime/folder.c
loader runtime/program_bytes.c runtime/program_decode.c runtime/program_check.c runtime/program_check_code.c \
runtime/program_expand.c runtime/program_ranks.c runtime/program_share.c runtime/program.c
checkpoint runtime/checkpoint.c
saver runtime/saver.c
weights runtime/safetensors.c runtime/weights.c
verifier $(echo compiler/verify/*.c)
EOF

# the lines of one source as gcov lists them; what Bison and Flex made of a source is in another file than that
list() {
    object=${1%.*}.o
    case $1 in
    *.y) object=${1%.y}.tab.o ;;
    *.l) object=${1%.l}.lex.o ;;
    esac
    gcov -t -o "$build/$object" "$1" 2>/dev/null |
        awk -v file="$1" '/^ *-: *0:Source:/ {here = $0 ~ "Source:" file "$"} here'
}
while read -r group files; do
    for f in $files; do
        to=$lines/$(echo "$f" | tr / -).gcov
        list "$f" >"$to"
        awk -v file="$f" -v group="$group" '/^ *#####:/ {missed++} /^ *[0-9]+\*?:/ {run++}
            END {if (run + missed)
                     printf "%6.2f %% of %5d  %-12s %s\n", 100 * run / (run + missed), run + missed, group, file}' "$to"
    done
done <"$lines/groups" | sort -n >"$lines/table"
cat "$lines/table"
awk -v goal=$GOAL '{all[$5] += $4; run[$5] += $1 * $4 / 100}
    END {for (g in all) {
             printf "%6.2f %% of %5d  %s\n", 100 * run[g] / all[g], all[g], g
             low += g != "saver" && 100 * run[g] < goal * all[g]
         }
         exit low > 0}' \
    "$lines/table" >"$lines/sums" || { echo "a group has less than $GOAL %" >&2; failed=1; }
sort -n "$lines/sums"
exit $((failed > 0))
