#!/bin/sh
# Every row of compiler/model/opr.def is put into the model, every row of runtime/isa.def is emitted by the lowering,
# and every kernel has numbers of its own to be compared with: prints each row that lacks one; exit 1 if there is one.
# Run from the root of the tree.
#   Exempt: BROADCAST, which nothing emits but whose number stays; of numbers, rows whose kernel only reads tokens, or
#   is none.
set -u
status=0
for row in $(sed -n 's/^OPR(\([A-Z0-9_]*\),.*/\1/p' compiler/model/opr.def); do
    grep -qE "\<OPR_$row\>" compiler/model/expand*.c || {
        echo "$row: nothing in compiler/model/expand*.c puts this operator into the model"
        status=1
    }
done
sed -n 's/^INSN(\([A-Z0-9_]*\), [A-Z]*, \([A-Z0-9]*\).*/\1 \2/p' runtime/isa.def | (
    failed=0
    while read -r row unit; do
        [ "$row" = BROADCAST ] || grep -rqE "EMIT[A-Z_]*\([^,]*, $row\>|\<OP_$row\>" compiler/lower || {
            echo "$row: nothing in compiler/lower emits it"
            failed=1
        }
        case $unit:$row in
        P2P:* | COLLECTIVE:* | *:TOKENS | *:TOKENS_AHEAD | *:SEAM) continue ;;
        esac
        grep -qE "\<OP_$row\>|^ELEMENT\($row," $(ls tests/kernels/*.c tests/kernels/elements.def | grep -v cuda) || {
            echo "$row: no case in tests/kernels compares the CPU's kernel with a formula"
            failed=1
        }
    done
    exit $failed
) || status=1
exit $status
