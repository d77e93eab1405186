#!/usr/bin/env bash
# Builds the program and runs the tour of the README (Quick start).
set -euo pipefail
cd "$(dirname "$0")"
cargo build --release -p onceward
export PATH="${CARGO_TARGET_DIR:-$PWD/target}/release:$PATH"
rm -rf /tmp/onceward-tour.db*
# If a command fails, stop the server and the worker. In any case wait until they have ended.
trap 'kill $(jobs -p) 2>/dev/null' ERR
trap wait EXIT
# Shows each command as it runs.
set -x
onceward serve --db sqlite:/tmp/onceward-tour.db & server=$!
job=$(onceward new execution.job --payload '"what a day"')
onceward work execution.job --lease 2s -- sh -c 'sleep 600' &
onceward watch "$job" --until RUNNING
kill -9 $!
onceward work execution.job -- wc -w &
onceward watch "$job" --until SUCCEEDED
onceward get "$job"
onceward verify --db sqlite:/tmp/onceward-tour.db
kill $! $server
