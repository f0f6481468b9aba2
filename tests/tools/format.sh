#!/bin/sh
# The product's C files are as clang-format writes them by .clang-format.  Prints what is not; exit 1 if there is any, 77 where
# there is no clang-format 14 (Debian 12's), since others write some things differently.  Run from the root of the tree.
#   clang-format -i FILE...    mends it
set -u
clang-format --version 2>/dev/null | grep -q 'version 14\.' || exit 77
find compiler runtime kernels -name '*.[ch]' -exec clang-format --dry-run -Werror {} +
