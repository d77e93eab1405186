#!/usr/bin/env bash
# Builds the program and runs the tour of the README (Quick start).
set -euo pipefail
cd "$(dirname "$0")"
cargo build --release -p onceward
export PATH="${CARGO_TARGET_DIR:-$PWD/target}/release:$PATH"
rm -rf /tmp/onceward-tour.db*
if (: > /dev/tcp/127.0.0.1/7171) 2> /dev/null; then
  echo "error: another program listens on 127.0.0.1:7171, where the tour's server would; stop it, then run ./tour.sh again" >&2
  exit 1
fi
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
