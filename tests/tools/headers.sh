#!/bin/sh
# Every header compiles alone and has an include guard.
#   headers.sh CC FLAGS...       prints what is wrong, exit 1 if anything is; 77 if a header could not be tried, else
set -u
failed=0 untried=0
for header in $(find compiler runtime kernels -name '*.h' | sort); do
    # cuBLASLt's and cuDNN's own headers are needed for one of ours
    [ "$header" = kernels/cuda/libraries.h ] && [ ! -f /usr/local/cuda/include/cublasLt.h ] && untried=77 && continue
    printf '#include "%s"\n' "$header" | "$@" -isystem /usr/local/cuda/include -fsyntax-only -x c - || { echo "$header: does not compile alone"; failed=1; }
    grep -q '^#ifndef LLMC_[A-Z0-9_]*H$' "$header" || { echo "$header: no include guard LLMC_..._H"; failed=1; }
done
[ $failed = 0 ] || exit 1
exit $untried
