# Sourced: one machine as two hosts, hosta and hostb: network namespaces, joined by a cable that is the only way between
# them, each with its own name and its own shared memory.  Needs $dir, an empty folder; exit 77 where this machine lacks
# what it takes: root, ip, unshare, nsenter, mpirun.
#   on HOST COMMAND...    runs it there
#   $ca, $cb              the ends of the cable; $a, $b a process of each host, which ends with the shell
#   $dir/agent            what mpirun calls instead of ssh: HOST COMMAND...
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
# whatever has stayed on a host goes with it
leave() {
    for p in /proc/[0-9]*; do
        case $(readlink "$p/ns/net") in
        "$(readlink /proc/$a/ns/net)" | "$(readlink /proc/$b/ns/net)") [ "${p#/proc/}" = $a ] || [ "${p#/proc/}" = $b ] || kill -9 "${p#/proc/}" ;;
        esac
    done 2>/dev/null
    kill $a $b
    ip link del $ca 2>/dev/null
}
trap leave EXIT
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
