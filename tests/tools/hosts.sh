#!/bin/sh
# One machine as two: network namespaces, joined by a cable that is the only way between them, each with its own name and
# its own shared memory.  llmrun --transport mpi over both gives the bytes of one host, and without --transport says what
# to pass.
#   hosts.sh BUILD FOLDER PLAN DATA RANKS     leaves output in FOLDER; exit 77 where this machine lacks what it takes: root, ip,
#                                             unshare, nsenter, mpirun
set -u
build=$(realpath "$1") dir=$(realpath "$2") plan=$(realpath "$3") data=$(realpath "$4") ranks=$5
for tool in ip unshare nsenter mpirun; do
    command -v $tool >/dev/null || { echo "there is no $tool"; exit 77; }
done
unshare --net --uts --ipc --mount true 2>/dev/null || { echo "namespaces cannot be made here"; exit 77; }
ca=a$$ cb=b$$ # ends of the cable
ip link add $ca type veth peer name $cb 2>/dev/null || { echo "there is no veth"; exit 77; }

printf '127.0.0.1 localhost\n10.77.0.1 hosta\n10.77.0.2 hostb\n' >"$dir/names"
# a host is a process that sleeps in its namespaces
for host in hosta hostb; do
    unshare --net --uts --ipc --mount sh -c "hostname $host; mount -t tmpfs none /dev/shm; mount --bind '$dir/names' /etc/hosts
        touch '$dir/$host.made'; exec sleep 600" &
    echo $! >"$dir/$host"
done
a=$(cat "$dir/hosta") b=$(cat "$dir/hostb")
trap 'kill $a $b; ip link del $ca 2>/dev/null' EXIT
for i in $(seq 100); do [ -e "$dir/hosta.made" ] && [ -e "$dir/hostb.made" ] && break; sleep 0.1; done
ip link set $ca netns $a && ip link set $cb netns $b || exit 1
on() { host=$1; shift; nsenter -t "$(cat "$dir/$host")" --net --uts --ipc --mount "$@"; }
on hosta sh -c "ip addr add 10.77.0.1/24 dev $ca; ip link set $ca up; ip link set lo up"
on hostb sh -c "ip addr add 10.77.0.2/24 dev $cb; ip link set $cb up; ip link set lo up"

# what mpirun calls instead of ssh: HOST COMMAND...
cat >"$dir/agent" <<END
#!/bin/sh
host=\$1; shift
exec nsenter -t \$(cat "$dir/\$host") --net --uts --ipc --mount sh -c "cd '$PWD'; \$*"
END
chmod +x "$dir/agent"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
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
