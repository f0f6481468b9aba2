#!/bin/sh
# Run each fuzzer for a while, or for FUZZ_RUNS inputs, two at a time.    fuzz.sh BUILD_FOLDER SECONDS FUZZER...
# Seeds: tests/fuzz/seeds/<name>/ where it exists; what is found grows in BUILD_FOLDER/corpus.  Exit 1 on any finding.
set -u
build=$1 seconds=$2
shift 2
# Freed memory stays poisoned for less long than usual, so that the caches hold it.  A report that lacks where memory
# came from has that when its input is run alone.
export ASAN_OPTIONS=quarantine_size_mb=1:thread_local_quarantine_size_kb=64:malloc_context_size=0
limit=-max_total_time=$seconds
[ -z "${FUZZ_RUNS-}" ] || limit=-runs=$FUZZ_RUNS
[ $# -gt 0 ] || { echo "no fuzzers in tests/fuzz" >&2; exit 1; }
# bytes of the longest inputs: few enough to be fast, and as many as most seeds have
longest() {
    case $1 in
    fuzz_program) echo 4096 ;;
    fuzz_data) echo 1100 ;;
    fuzz_cluster) echo 1000 ;;
    fuzz_measured | fuzz_language) echo 500 ;;
    *) echo 700 ;;
    esac
}
run() {
    corpus=$build/corpus/$1 seeds=tests/fuzz/seeds/${1#fuzz_}
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=
    if "$build/tests/fuzz/$1" "$limit" -max_len="$(longest "$1")" -timeout=60 -rss_limit_mb=2048 \
        -print_final_stats=1 -close_fd_mask=3 -artifact_prefix="$corpus-" "$corpus" $seeds >"$corpus.log" 2>&1; then
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
