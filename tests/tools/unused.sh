#!/bin/sh
# No function without a use: of every function that is not static, some other object must ask for it, or some other file than its
# own say its name (the CUDA plugin is not always built).
#   unused.sh BUILD_FOLDER      takes the names from our object files, and looks for them there and as words in the sources
# A function that only its own file calls is to be static; one that nobody calls is to go.  Words in comments count, and
# of headers only the macros, so this may miss one but accuses none falsely.  Exempt: main, the plugin's entry, and what the C
# library calls in our place (runtime/allocations.c), and rows of a table beside them (exact_ADD,
# emit_ADD).
set -u
build=$1
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
find "$build"/compiler "$build"/runtime "$build"/kernels -name '*.o' ! -path '*/runtime/allocations.o' -exec nm -A --defined-only {} + |
    awk -v build="$build/" '$(NF - 1) == "T" {
        file = $1
        sub(/:.*/, "", file)
        sub(/\.o$/, "", file)
        name = $NF
        source = substr(file, length(build) + 1) ".c"
        there = (getline line < source) >= 0 # an object may outlive its source
        close(source)
        if (there && index(file, build) == 1 && name !~ /^(main|_.*|exact_[A-Z].*|emit_[A-Z].*|llmrun_cuda)$/)
            print substr(file, length(build) + 1), name
    }' >"$tmp/defined"
find "$build"/compiler "$build"/runtime "$build"/kernels "$build"/grammar "$build"/tests -name '*.o' -exec nm --undefined-only {} + |
    awk 'NF == 2 && $1 == "U" { print $2 }' | sort -u >"$tmp/asked"
find compiler runtime kernels grammar tests -name '*.c' -o -name '*.cu' -o -name '*.cc' -o -name '*.cuh' -o -name '*.y' -o -name '*.l' -o -name '*.h' >"$tmp/sources"
awk -v list="$tmp/defined" -v asked="$tmp/asked" '
BEGIN {
    while ((getline line < asked) > 0)
        used[line] = 1
    while ((getline line < list) > 0) {
        split(line, f, " ")
        owner[f[2]] = f[1]
    }
}
FNR == 1 {
    file = FILENAME
    header = sub(/\.h$/, "", file)
    sub(/\.[a-z]+$/, "", file)
    macro = 0
}
{
    macro = macro || /^ *# *define/
    taken = !header || macro
    macro = macro && /\\$/
    if (!taken)
        next

    n = split($0, word, /[^A-Za-z0-9_]+/)
    for (i = 1; i <= n; i++)
        if (word[i] in owner && (header || owner[word[i]] != file))
            used[word[i]] = 1
}
END {
    for (name in owner)
        if (!(name in used)) {
            print owner[name] ": " name
            failed = 1
        }
    exit failed
}' $(cat "$tmp/sources") | sort >"$tmp/unused"
[ ! -s "$tmp/unused" ] && exit 0
cat "$tmp/unused"
exit 1
