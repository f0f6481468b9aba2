#!/bin/sh
# The map of the tree as an order: a file may include its own folder and folders earlier in the order, nothing later.
# Prints each include that breaks it; exit 1 if there is one.  Run from the root of the tree.
#   The compiler sees of runtime/ only what a program and a file are; runtime/ and kernels/ see nothing of the compiler.
#   kernels/ takes its prototypes from the instruction table and its tokens from runtime/data.
#   emit/plan.h is the record that the passes behind the lowering hand on, so it counts as part of lower/.
#   compiler/explore/module/ is a program of its own, behind everything.
#   One library, one owner: libxml2 in topo_xml.c, libyaml in import/yaml.c, MPI in its plugin, CBLAS in kernels/cpu/ and where llmrun chooses its core
#   type.
set -u
grep -rn --include='*.[ch]' -E '^[[:space:]]*#[[:space:]]*include' kernels runtime compiler | awk -F'[:"<>]' '
BEGIN {
    n = split("runtime/status.h runtime/error. runtime/file. runtime/hash. runtime/isa. runtime/data. runtime/routing. " \
              "kernels/kernels.h runtime/workspace. runtime/cuda_api. kernels/ runtime/ compiler/support/ " \
              "compiler/topology/ compiler/profile/ compiler/model/schedule.def compiler/target/ compiler/model/ compiler/import/ compiler/cost/ compiler/schedule/ " \
              "compiler/simulate/ compiler/emit/plan.h compiler/lower/ compiler/place/ compiler/verify/ " \
              "compiler/export/ compiler/search/ compiler/emit/ compiler/transition/ compiler/compile. compiler/fit. compiler/llmc. compiler/inspect/ " \
              "compiler/report/ compiler/explore/ compiler/origin/ compiler/execute/ compiler/command/ compiler/", order, " ")
}
function rank(path,    i) {
    for (i = 1; i <= n; i++)
        if (index(path, order[i]) == 1)
            return i
    return 0
}
function bad(why) { print $1 ":" $2 ": includes " $4 ": " why; failed = 1 }
{ from = $1; to = $4 }
to ~ /^libxml\// && from != "compiler/topology/topo_xml.c" { bad("only topo_xml.c may use libxml2") }
to == "yaml.h" && from != "compiler/import/yaml.c" { bad("only import/yaml.c may use libyaml") }
to == "mpi.h" && from != "runtime/mpi/plugin.c" { bad("only the plugin may use MPI") }
to == "cblas.h" && from !~ /^(kernels\/cpu|runtime)\// { bad("only kernels/cpu and runtime may use CBLAS") }
from ~ /^compiler\/explore\/module\// { next }
from ~ /^compiler\// && to ~ /^(runtime|kernels)\// &&
to !~ /^runtime\/(isa\.h|isa\.def|program\.h|program_share\.h|workspace\.h|status\.h|error\.h|hash\.h|file\.h)$/ {
    bad("of the machine the compiler may see only isa.h, program.h, program_share.h, workspace.h, status.h, error.h, hash.h and file.h")
}
rank(to) > rank(from) { bad("later in the order of the map") }
END { exit failed }'
