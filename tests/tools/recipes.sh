#!/bin/sh
# The README's recipes carried out: every patch of tests/recipes/ on a copy of the tree, built and tested; then once
# more without each of its files, which the build or a test must notice by name.  All patches lie in one copy, so that
# each step compiles only what it changes, without optimization.
#   recipes.sh BUILD_FOLDER     from the root of a built tree; CC and NVCC as make has them
# In front of a patch stand the lines that say what must hold:
#   files: N                    it changes at most N
#   test: COMMAND               in the copy; $build its binaries, $base/$build the tree's own, $work a folder
#   without FILE: TEXT          without its part of FILE the build or a test fails and says TEXT, a regular expression
# CUDA files are compiled for the CPU's emulation in any case, and by nvcc where it is.  Ends with "N passed, M failed";
# exit 1 on any failure.
set -u
unset MAKEFLAGS MFLAGS MAKELEVEL
build=$1 base=$(pwd) tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT
trap 'exit 1' HUP INT TERM
tree=$tmp/tree work=$tmp/work out=$tmp/output passed=0 failed=0 started=$(date +%s)
export GIT_CEILING_DIRECTORIES="$tmp" CC="${CC:-cc}"
case $CC in *clang*) quiet= ;; *) quiet=-Wno-format-truncation ;; esac # which gcc finds more of without optimization

pass() {
    passed=$((passed + 1))
    echo "  ok    $1"
}
fail() {
    failed=$((failed + 1))
    echo "  FAIL  $1"
    [ $# -eq 1 ] || tail -n 12 "$2" | sed 's/^/          /'
}

patch_of() { echo "$base/tests/recipes/$1.patch"; }
lines_of() { sed -n "/^diff /q; s|^$2: ||p" "$(patch_of "$1")"; } # what stands behind the word in front of the patch
files_of() { git apply --numstat "$(patch_of "$1")" | cut -f 3; }
make_tree() { make --no-print-directory -C "$tree" -j"$(nproc)" OPT="-O0 -ffp-contract=off $quiet" "$@" >"$out" 2>&1; }
build_tree() { make_tree NVCC= WASM= "$build/llmc" "$build/llmrun" "$build/tests/run"; }

# losses FOLDER MODEL OPTION...: of three steps on CPU ranks, by the binaries of the folder
losses() {
    folder=$1 model=$2
    shift 2
    rm -rf "$work/losses"
    "$folder/llmc" plan "$model" topologies/cpu8.xml "$@" --set 'microbatch=1 sequences' -o "$work/losses" -q >&2 &&
        "$folder/llmrun" "$work/losses" --data tests/reference/llama/tokens.bin --steps 3 2>&1 |
        sed -n 's/^step.* loss \([0-9.]*\) .*/\1/p' | grep .
}

# a recipe's tests, up to the first that fails
run_tests() {
    lines_of "$1" test >"$tmp/tests"
    while read -r line; do
        (cd "$tree" && eval "$line") >>"$out" 2>&1 </dev/null || {
            echo "failed: $line" >>"$tmp/failed"
            return 1
        }
    done <"$tmp/tests"
}

# Takes a file of a recipe back to what it was.  One that others include keeps its old time at first, beside sources of
# the recipe that are new: what these miss is noticed without compiling all else.
take_back() {
    cp -p "$tree/$2" "$tmp/patched"
    (cd "$tree" && git apply -R --include="$2" "$(patch_of "$1")") || return 1
    case $2 in
    *.h | *.def)
        [ ! -e "$base/$2" ] || touch -r "$base/$2" "$tree/$2"
        for other in $(files_of "$1"); do
            case $other in *.c | *.cu) touch "$tree/$other" ;; esac
        done
        ;;
    esac
    [ -e "$tree/$2" ] || rm -f "$tree/$build/llmc" "$tree/$build/llmrun" "$tree/$build/tests/run"
}

# what the build and the tests say without the file; false if nothing fails
notice() {
    later=false
    build_tree || return 0
    case $2 in
    *.h | *.def)
        later=true
        touch "$tree/$2"
        build_tree || return 0
        ;;
    esac
    ! run_tests "$1"
}

leave_out() {
    text=$(lines_of "$1" "without $2")
    if [ -z "$text" ]; then
        fail "$1: nothing says what happens without $2"
        return
    fi
    take_back "$1" "$2" || exit 1
    if ! notice "$1" "$2"; then
        fail "$1 without $2: nothing fails"
    elif ! grep -qE "$text" "$out"; then
        fail "$1 without $2: something fails, but does not say '$text'" "$out"
    else
        pass "$1 without $2: $(grep -m 1 -oE ".{0,60}($text).{0,60}" "$out" | sed 's/^ *//')"
    fi
    mkdir -p "$(dirname "$tree/$2")"
    cp -p "$tmp/patched" "$tree/$2"
    case $2 in
    *.h | *.def) ! $later || touch "$tree/$2" ;;
    *) touch "$tree/$2" ;;
    esac
}

compile_cuda() {
    for file in $(files_of "$1" | grep '\.cu$'); do
        if [ -z "${NVCC:-}" ]; then
            echo "  --    $1: $file was compiled for the CPU alone, nvcc was not found"
        elif make_tree NVCC="$NVCC" "$build/cuda/$file.o"; then
            pass "$1: nvcc compiles $file"
        else
            fail "$1: nvcc does not compile $file" "$out"
        fi
    done
}

mkdir -p "$work" "$tree/$(dirname "$build")"
tar -c --exclude=./build --exclude=./.git . | tar -x -C "$tree"
cp -a "$build" "$tree/$build"
recipes=
for file in tests/recipes/*.patch; do
    recipe=$(basename "$file" .patch)
    n=$(files_of "$recipe" | wc -l) most=$(lines_of "$recipe" files)
    if ! (cd "$tree" && git apply "$base/$file") >"$out" 2>&1; then
        fail "$recipe: $file does not apply to this tree; make it anew, with git diff -U1" "$out"
        continue
    fi
    recipes="$recipes $recipe"
    if [ "$n" -gt "${most:-0}" ]; then
        fail "$recipe: $n files, at most ${most:-0} are allowed"
    else
        pass "$recipe: $n of at most $most files"
    fi
done
if ! build_tree; then
    fail "the recipes do not build" "$out"
    recipes=
fi
for recipe in $recipes; do
    : >"$out"
    : >"$tmp/failed"
    if run_tests "$recipe"; then
        pass "$recipe: built, and $(lines_of "$recipe" test | wc -l) tests pass"
        compile_cuda "$recipe"
    else
        cat "$tmp/failed" >>"$out"
        fail "$recipe: a test fails" "$out"
    fi
done
for recipe in $recipes; do
    for file in $(files_of "$recipe"); do
        leave_out "$recipe" "$file"
    done
done
echo "$passed passed, $failed failed; $(($(date +%s) - started)) s"
[ "$failed" -eq 0 ]
