#!/bin/sh
# The compose file's example without containers: a real etcd, and two nodes with one worker each.
# Needs `python` with torch and Midflight, and `etcd` on the PATH. It leaves nothing behind.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
etcd_pid=
other_pid=

clean_up() {
    for pid in $other_pid $etcd_pid; do
        kill "$pid" 2>/dev/null || true
    done
    wait
    rm -rf "$folder"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

free_port() {
    python -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

client=http://127.0.0.1:$(free_port)
peer=http://127.0.0.1:$(free_port)
etcd --data-dir "$folder/data" --listen-client-urls "$client" --advertise-client-urls "$client" \
    --listen-peer-urls "$peer" --initial-advertise-peer-urls "$peer" \
    --initial-cluster "default=$peer" >"$folder/log" 2>&1 &
etcd_pid=$!

node() {
    python -m midflight.torchrun --nnodes=2 --nproc_per_node=1 \
        --rdzv_backend=etcd --rdzv_endpoint="${client#http://}" --rdzv_id=hello "$here/main.py"
}

node &
other_pid=$!
node
wait "$other_pid"
other_pid=
