#!/bin/sh
# Run each fuzzer for a while, or for FUZZ_RUNS inputs, two at a time.    fuzz.sh BUILD_FOLDER SECONDS FUZZER...
# Seeds: tests/fuzz/seeds/<name>/ where it exists; what is found grows in BUILD_FOLDER/corpus.  Exit 1 on any finding.
set -u
build=$1 seconds=$2
shift 2
limit=-max_total_time=$seconds
[ -z "${FUZZ_RUNS-}" ] || limit=-runs=$FUZZ_RUNS
[ $# -gt 0 ] || { echo "no fuzzers in tests/fuzz" >&2; exit 1; }
run() {
    corpus=$build/corpus/$1 seeds=tests/fuzz/seeds/${1#fuzz_}
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=
    if "$build/tests/fuzz/$1" "$limit" -timeout=60 -rss_limit_mb=2048 -print_final_stats=1 -close_fd_mask=3 \
        -artifact_prefix="$corpus-" "$corpus" $seeds >"$corpus.log" 2>&1; then
        echo "$1: no finding, $(sed -n 's/^stat::number_of_executed_units: *//p' "$corpus.log") executions"
    else
        echo "$1: FINDING, see $corpus.log"
        tail -n 25 "$corpus.log"
        return 1
    fi
}
failed=0
while [ $# -gt 0 ]; do
    run "$1" & first=$!
    second=
    [ $# -gt 1 ] && { run "$2" & second=$!; shift; }
    shift
    wait $first || failed=1
    [ -z "$second" ] || wait "$second" || failed=1
done
exit $failed
