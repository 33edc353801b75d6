#!/bin/sh
# Three nodes made of this machine: one is drained, one is lost, and the training goes on.
# Needs `midflight` and `python` on the PATH. It has a home of its own and leaves nothing behind.
set -eu

repository=$(cd "$(dirname "$0")/../.." && pwd)
MIDFLIGHT_HOME=$(mktemp -d /tmp/mf.XXXXXX) # short: a socket's path may not be long
export MIDFLIGHT_HOME OMP_NUM_THREADS=1

clean_up() {
    midflight down --jobs
    rm -rf "$MIDFLIGHT_HOME"
}
trap clean_up EXIT
trap 'exit 130' INT TERM

generation() {
    midflight status nodes | awk '/^generation:/ { print $2 }'
}

# Until all workers train together, in a later generation than $1.
whole_after() {
    tries=240
    until midflight status nodes 2>/dev/null | awk -v before="$1" '
            /^phase:/ { stable = $2 == "stable" }
            /^generation:/ { later = $2 > before }
            /^members:/ { whole = $2 == $4 }
            END { exit !(stable && later && whole) }'; do
        tries=$((tries - 1))
        if [ "$tries" -eq 0 ]; then
            echo "the workers did not come together again" >&2
            midflight events nodes >&2
            exit 1
        fi
        sleep 0.5
    done
    midflight node list
}

say() {
    printf '\n== %s\n' "$1"
}

say "three nodes with two devices each, a job of three workers"
midflight up --nodes 3 --gpus-per-node 2
midflight submit etjob --name nodes --gpus 1 --workers 3 --min-workers 1 --max-workers 4 \
    --working-dir "$repository" "python examples/02-own-epoch-loop/train.py --epochs 1000000"
whole_after 0

say "node-2 is drained: its workers leave at a step boundary and start elsewhere"
before=$(generation)
midflight node drain node-2
whole_after "$before"
midflight node return node-2

say "node-1 is lost, with the launcher on it: the others train on, and a new launcher takes over"
before=$(generation)
midflight node lose node-1
whole_after "$before"
midflight node return node-1

say "what happened, and whether every sample was used once"
midflight events nodes
midflight audit nodes | grep 'every sample'
