#!/bin/sh
# Two hosts (two_hosts.sh): llmrun --transport mpi over both gives the bytes of one host, and without --transport says what
# to pass.
#   hosts.sh BUILD FOLDER PLAN DATA RANKS     leaves output in FOLDER; exit 77 where this machine lacks what it takes: root, ip,
#                                             unshare, nsenter, mpirun
set -u
build=$(realpath "$1") dir=$(realpath "$2") plan=$(realpath "$3") data=$(realpath "$4") ranks=$5
. "$(dirname "$0")/two_hosts.sh"
half=$((ranks / 2))
both="timeout 120 mpirun --mca plm_rsh_agent $dir/agent --host hosta:$half,hostb:$half --oversubscribe --bind-to none -n $ranks"

"$build/llmrun" "$plan" --data "$data" --steps 4 --save "$dir/one" --log "$dir/one.jsonl" --quiet || exit 1
on hosta cat /proc/net/dev | awk "/$ca/"' { print $10 }' >"$dir/before"
on hosta $both "$build/llmrun" "$plan" --transport mpi --data "$data" --steps 4 --save "$dir/two" --log "$dir/two.jsonl" --quiet || exit 1
bytes=$(on hosta cat /proc/net/dev | awk -v before="$(cat "$dir/before")" "/$ca/"' { print $10 - before }')
cmp "$dir/one/model.safetensors" "$dir/two/model.safetensors" || exit 1
for run in one two; do sed 's/, "lr".*//' "$dir/$run.jsonl" >"$dir/$run.losses"; done
cmp "$dir/one.losses" "$dir/two.losses" || exit 1
on hosta $both "$build/llmrun" "$plan" --data "$data" --steps 4 --quiet >"$dir/said" 2>&1
code=$?
[ $code = 5 ] && grep -q 'share no memory: pass --transport mpi' "$dir/said" || { echo "without --transport: exit $code"; cat "$dir/said"; exit 1; }
echo "two hosts, $ranks ranks: the weights and losses of one host; $bytes bytes went over the cable"
