#!/bin/sh
# Every header compiles alone and has an include guard.
#   headers.sh CC FLAGS...       prints what is wrong, exit 1 if anything is
set -u
failed=0
for header in $(find compiler runtime kernels -name '*.h' | sort); do
    printf '#include "%s"\n' "$header" | "$@" -fsyntax-only -x c - || { echo "$header: does not compile alone"; failed=1; }
    grep -q '^#ifndef LLMC_[A-Z0-9_]*H$' "$header" || { echo "$header: no include guard LLMC_..._H"; failed=1; }
done
exit $failed
