#!/bin/sh
# The shape of the tree in a few numbers, of the working tree or of a commit, and of the two side by side:
#   shape.sh [COMMIT]...       lines and files of the product and of the tests; functions, the longest and the 95th percentile
#   shape.sh --check BUILD     exit 1 where a function is above 80 lines, the 95th percentile above 32, or two folders need each
#                              other, by the names that their object files ask for; but runtime/ and kernels/, where the table of
#                              instructions has its kernels, and grammar/ and compiler/model/, which the parser fills
set -u
PRODUCT='^(compiler|runtime|kernels|grammar)/.*\.(c|h|cu|cuh|cc|def|l|y)$'
TESTS='^tests/.*\.(c|h|cu|cuh|cc|py|sh|def)$'

# of the functions in the files that are named on stdin: lines of each, with its place
functions() {
    grep -E '\.(c|cu|cc)$' | xargs awk '
        FNR == 1 { begun = 0 }
        $0 == "{" { begun = FNR; head = before }
        $0 == "}" && begun { print FNR - begun + 2, FILENAME ":" begun - 1 ": " head; begun = 0 }
        { before = $0 }'
}

# one tree's row; in the tree's root
row() {
    find compiler runtime kernels grammar tests -type f | sort >"$tmp/files"
    product=$(grep -E "$PRODUCT" "$tmp/files" | xargs cat | wc -l)
    tests=$(grep -E "$TESTS" "$tmp/files" | xargs cat | wc -l)
    grep -E "$PRODUCT" "$tmp/files" | functions | sort -n >"$tmp/functions"
    n=$(wc -l <"$tmp/functions")
    printf '%-12s %9d %9d %9d %9d %9d %9d %9d\n' "$1" "$product" "$(grep -cE "$PRODUCT" "$tmp/files")" "$tests" "$2" "$n" \
        "$(tail -n 1 "$tmp/functions" | cut -d' ' -f1)" "$(awk -v n="$n" 'NR >= 0.95 * n { print $1; exit }' "$tmp/functions")"
}

# folders that need each other: names that objects ask for, owners of the names, and the pairs of folders that follow
circles() {
    objects=$(find "$1/compiler" "$1/runtime" "$1/kernels" "$1/grammar" -name '*.o')
    nm -A $objects 2>/dev/null | awk -v build="$1/" '
        function folder(file) {
            file = substr(file, length(build) + 1)
            if (file ~ /^(runtime|kernels)\//) return "runtime and kernels"
            if (file ~ /^(grammar|compiler\/model)\//) return "grammar and model"
            return file ~ /^compiler\/.*\// ? parent(file) : file
        }
        function parent(file) { sub(/\/[^\/]*$/, "", file); return file }
        { file = $1; sub(/:.*/, "", file) }
        $(NF - 1) ~ /^[TDBR]$/ { owner[$NF] = folder(file) }
        $(NF - 1) == "U" { asks[folder(file) SUBSEP $NF] = 1 }
        END {
            for (pair in asks) {
                split(pair, x, SUBSEP)
                if (x[2] in owner && owner[x[2]] != x[1]) { needs[x[1], owner[x[2]]] = x[2]; all[x[1]]; all[owner[x[2]]] }
            }
            for (k in all) # whatever a folder needs in steps (Warshall)
                for (i in all)
                    if ((i, k) in needs)
                        for (j in all)
                            if ((k, j) in needs && !((i, j) in needs)) needs[i, j] = k
            for (pair in needs) {
                split(pair, x, SUBSEP)
                if (x[1] < x[2] && (x[2], x[1]) in needs)
                    print x[1] " and " x[2] " need each other: " needs[pair] ", " needs[x[2], x[1]]
            }
        }'
}

tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
if [ "${1:-}" = --check ]; then
    find compiler runtime kernels grammar -type f | grep -E "$PRODUCT" | functions | sort -n >"$tmp/functions"
    awk '$1 > 80 { $1 = ""; print "more than 80 lines:" $0 }' "$tmp/functions" >"$tmp/bad"
    awk -v n="$(wc -l <"$tmp/functions")" 'NR >= 0.95 * n { if ($1 > 32) print "one function in twenty is longer than " $1 " lines"; exit }' \
        "$tmp/functions" >>"$tmp/bad"
    circles "$2" | sort >>"$tmp/bad"
    cat "$tmp/bad"
    [ ! -s "$tmp/bad" ]
    exit
fi
printf '%-12s %9s %9s %9s %9s %9s %9s %9s\n' tree product files tests 'all files' functions longest p95
for commit in "$@"; do
    mkdir "$tmp/tree"
    git archive "$commit" | tar -x -C "$tmp/tree"
    (cd "$tmp/tree" && row "$commit" "$(git -C "$OLDPWD" ls-tree -r --name-only "$commit" | wc -l)")
    rm -rf "$tmp/tree"
done
row . "$(git ls-files | wc -l)"
