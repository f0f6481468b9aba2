#!/bin/sh
# No mutable file-scope data: no object may lie in .data or .bss of any object file of ours.
#   globals.sh BUILD_FOLDER      the generated parser and scanner (grammar/) are exempt, and the counter
# of allocations, which stands in front of malloc() and has no argument to live in; so has a signal's handler (stop.c)
# Constants that hold pointers lie in .data.rel.ro and are fine.  Prints "file: object", exit 1 if there is one.
set -u
build=$1
found=$(find "$build"/compiler "$build"/runtime "$build"/kernels -name '*.o' ! -path '*/runtime/allocations.o' ! -path '*/runtime/stop.o' | sort | while read -r object; do
    # a row is: address, flags (O = object), section, tab, size, name; sanitizers add objects of their own, named __...
    objdump -t "$object" | sed 's/\.data\.rel\.ro[.a-z]*//' | awk -v file="${object#"$build"/}" '
        / O (\.data|\.bss)/ || /\*COM\*/ { if ($NF !~ /^(__|\.L)/) print file ": " $NF }'
done)
[ -n "$found" ] || exit 0
echo "$found"
exit 1
