#!/bin/sh
# What becomes of a run over two hosts (two_hosts.sh) when something happens between them or to one of them.
#   cut.sh BUILD FOLDER PLAN DATA RANKS CASE   leaves output in FOLDER; exit 77 as two_hosts.sh
#     down   the cable is pulled: rank 0 says so after the watchdog's time, by hosts and ranks; nothing is left running
#     drop   the cable takes nothing any more, without being down: the same
#     flap   the cable is down for a second: the run goes on
#     lost   all processes of one host are killed: the run ends, and what it left is gone on from, with the undisturbed bytes
set -u
build=$(realpath "$1") dir=$(realpath "$2") plan=$(realpath "$3") data=$(realpath "$4") ranks=$5 case=$6
. "$(dirname "$0")/two_hosts.sh"
# mpirun itself would wait for its daemon behind the cable for minutes, with and without a message on its way
for host in hosta hostb; do on $host sh -c 'echo 3 >/proc/sys/net/ipv4/tcp_retries2' || exit 77; done
export OMPI_MCA_oob_tcp_keepalive_time=15 OMPI_MCA_oob_tcp_keepalive_intvl=1 OMPI_MCA_oob_tcp_keepalive_probes=3
half=$((ranks / 2))
fail() { echo "$case: $*"; cut -c1-600 "$dir/said"; exit 1; }
# ranks of the host whose process is $1
there() {
    for p in /proc/[0-9]*; do
        [ "$(readlink "$p/ns/net")" = "$(readlink "/proc/$1/ns/net")" ] && [ "$(readlink "$p/exe")" = "$build/llmrun" ] && echo "${p#/proc/}"
    done 2>/dev/null
}
run() {
    on hosta timeout 180 mpirun --mca plm_rsh_agent "$dir/agent" --host hosta:$half,hostb:$half --oversubscribe --bind-to none -n "$ranks" \
        "$build/llmrun" "$plan" --transport mpi --data "$data" --quiet --watchdog 6 "$@"
}
steps=1000000
[ "$case" = lost ] && steps=60
rm -rf "$dir/log" "$dir/c"
run --steps $steps --log "$dir/log" --checkpoint "$dir/c" --every 5 >"$dir/said" 2>&1 &
job=$!
for i in $(seq 600); do [ -e "$dir/c/step-5" ] && break; sleep 0.1; done
[ -e "$dir/c/step-5" ] || fail "it does not begin"
start=$(date +%s)
case $case in
down) on hostb ip link set "$cb" down ;;
drop) on hosta tc qdisc add dev "$ca" root tbf rate 8bit burst 10 limit 1 2>/dev/null || { echo "there is no tc"; kill -9 $(there $a); exit 77; } ;;
flap)
    on hostb ip link set "$cb" down
    sleep 1
    on hostb ip link set "$cb" up
    before=$(wc -l <"$dir/log")
    for i in $(seq 100); do [ "$(wc -l <"$dir/log")" -gt $((before + 20)) ] && break; sleep 0.1; done
    [ "$(wc -l <"$dir/log")" -gt $((before + 20)) ] || fail "the run does not go on"
    kill -TERM $(there $b | head -n 1)
    ;;
lost) kill -9 $(there $b) ;;
esac
wait $job
code=$?
took=$(($(date +%s) - start))
case $case in
down | drop)
    [ $code = 4 ] || fail "exit $code after $took s"
    last=$(seq -s ', ' $half $((ranks - 1)))
    grep -q "llmrun: rank 0: .*nothing is heard of ranks $last on hostb for .* the link between it and hosta is cut, or the host is down" "$dir/said" ||
        fail "the link is not named"
    for i in $(seq 15); do [ -z "$(there $a; there $b)" ] && break; sleep 1; took=$((took + 1)); done
    [ -z "$(there $a; there $b)" ] || fail "processes are left"
    [ $took -le 60 ] || fail "it took $took s"
    ;;
flap) [ $code = 75 ] || fail "exit $code" ;;
lost)
    [ $code != 0 ] || fail "a lost host is no failure"
    [ -z "$(there $a)" ] || sleep 2
    [ -z "$(there $a)" ] || fail "processes are left"
    run --steps 60 --checkpoint "$dir/c" --resume --save "$dir/end" >"$dir/said" 2>&1 || fail "it cannot be resumed"
    "$build/llmrun" "$plan" --data "$data" --steps 60 --quiet --save "$dir/whole" >"$dir/said" 2>&1
    cmp "$dir/whole/model.safetensors" "$dir/end/model.safetensors" || fail "it ends otherwise"
    ;;
esac
echo "$case: exit $code after $took s"
