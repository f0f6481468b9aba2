#!/bin/sh
# Files are opened, replaced and removed in runtime/file.c alone, which knows what may stand in a file's place.
# Prints each call elsewhere that is not one of these; exit 1 if there is one.  Run from the root of the tree.
#   what the kernel shows of processes and memory, in /proc
#   folders that are made a moment before, under a name of their own: a plan on its way, the scratch folder of
#   check --execute
#   files that are mapped and grow by size, behind file_not_file() or file_may_replace(): weights, choices of
#   experts, the cache of measured products
set -u
calls='fopen|freopen|openat|open|creat|renameat|rename|unlinkat|unlink|remove|mkostemp|mkstemp|json_load_file'
grep -rnE --include='*.[ch]' "(^|[^_a-z>.])($calls)\(" compiler runtime kernels |
grep -v '^runtime/file\.[ch]:' | awk -F: -v calls="($calls)[(]" '
BEGIN {
    split("runtime/world.c=fopen runtime/memory.c=fopen " \
          "compiler/emit/plan_files.c=fopen,rename,unlink compiler/execute/real.c=fopen,open " \
          "runtime/safetensors_write.c=open,rename runtime/routing.c=open kernels/cuda/matmul_tune.c=open", list, " ")
    for (i in list) { split(list[i], row, "="); allowed[row[1]] = "," row[2] "," }
}
{
    text = $0
    sub(/^[^:]*:[^:]*:/, "", text)
    if (text ~ /^[[:space:]]*(\/\*|\*[[:space:]\/]|\*$|\/\/)/) next # a comment
    match(text, calls)
    call = substr(text, RSTART, RLENGTH - 1)
    if (!index(allowed[$1], "," call ",")) { print $1 ":" $2 ": " call "() outside of runtime/file.c"; failed = 1 }
}
END { exit failed }'
