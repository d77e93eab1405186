# Part of extract.sh: creates a temporary folder, runs the programs within their limits, and cleans up at the end.
# shellcheck shell=sh disable=SC2154,SC3045 # extract.sh defines `seconds`, `total` and `megabytes`; `ulimit -v` is not POSIX, but dash, bash and busybox have it.

fail() { # CODE MESSAGE [EXIT]
    ended=yes
    printf '%s: %s\n' "$1" "$2" >&2
    exit "${3:-1}"
}

no_room() {
    fail SYSTEM_TRANSIENT "no space for temporary files" 75
}

# Cleans up after every run: no program and no file stays. If the shell itself failed, for example to fork, the failure is retryable.
folder='' running='' ended=''
leave() {
    trap '' TERM INT HUP
    # shellcheck disable=SC2086 # They are words.
    [ -z "$running" ] || kill $running 2>/dev/null
    wait
    # Before coreutils 9.2 `timeout` leaves its program running if it gets SIGTERM while starting it. Each program writes its pid to `at` first;
    # once that folder is removed, a program that has not started yet cannot write its pid and does not start.
    tries=0
    while [ -d "$folder/at" ] && ! rmdir "$folder/at" 2>/dev/null && [ "$tries" -lt 20 ]; do
        if read -r left 2>/dev/null <"$folder/at/pid" && [ -n "$left" ]; then
            kill "$left" 2>/dev/null
            rm -f "$folder/at/pid"
        else
            sleep 0.1
        fi
        tries=$((tries + 1))
    done
    [ -z "$folder" ] || rm -rf "$folder"
    [ -n "$ended" ] || fail SYSTEM_TRANSIENT "the script could not continue" 75
}
trap leave EXIT
trap 'ended=yes; exit 143' TERM
trap 'ended=yes; exit 130' INT HUP

# Only this user can read the folder. Folders that runs ended by SIGKILL have left are deleted after a day.
umask 077
find "${TMPDIR:-/tmp}/" -maxdepth 1 -type d -user "$(id -u)" -name 'onceward-document.*' -mmin +1440 -exec rm -rf {} + 2>/dev/null
folder=$(mktemp -d "${TMPDIR:-/tmp}/onceward-document.XXXXXX" 2>/dev/null) || no_room
mkfifo "$folder/out" "$folder/err" 2>/dev/null && mkdir "$folder/at" 2>/dev/null || no_room

# In kilobytes. If the limit cannot be set, the existing one stays.
memory=$((megabytes * 1024))
(ulimit -v "$memory") 2>/dev/null || memory=$(ulimit -v)
export OMP_THREAD_LIMIT=1

now() { # sets `now` in seconds, from a monotonic clock if there is one
    if [ -r /proc/uptime ]; then read -r now _ </proc/uptime; else now=$(date +%s).; fi
    now=${now%.*}
}
now
deadline=$((now + total))

# Runs a program. Its output goes to FILE and its messages to `said`, both through a pipe to `head`, because the programs do not report a full
# disk and `head` does. They run in the background, so that the shell handles signals at once.
run() { # BYTES FILE PROGRAM ARGUMENT...
    bytes=$1 file=$2 program=$3
    shift 2
    now
    began=$now allowed=$((deadline - now))
    [ "$allowed" -gt 0 ] || fail PROCESSING_TIMEOUT "processing took longer than $total seconds"
    [ "$allowed" -le "$seconds" ] || allowed=$seconds
    head -c $((bytes + 1)) 2>/dev/null <"$folder/out" >"$file" &
    out=$!
    { head -c 65536 >"$folder/said" && cat; } 2>/dev/null <"$folder/err" >/dev/null &
    err=$!
    # shellcheck disable=SC2016 # They are the inner shell's.
    (ulimit -v "$memory" && exec timeout --foreground --kill-after=5 "$allowed" \
        sh -c 'echo "$$" >"$0/pid" || exit 125; exec "$@"' "$folder/at" "$@") >"$folder/out" 2>"$folder/err" &
    running="$! $out $err"
    wait "$!" 2>/dev/null
    status=$?
    rm -f "$folder/at/pid"
    running="$out $err"
    now
    # The program was killed, by `timeout` if its time is over.
    [ "$status" -ne 137 ] || [ $((now - began)) -lt "$allowed" ] || status=124
    [ "$status" -ne 124 ] || [ "$now" -lt "$deadline" ] || fail PROCESSING_TIMEOUT "processing took longer than $total seconds"
    [ "$status" -ne 124 ] || fail TIMEOUT "$program took longer than $allowed seconds" 75
    wait "$out" || no_room
    wait "$err" || no_room
    running=
    [ "$(wc -c <"$file")" -le "$bytes" ] || fail LIMIT_EXCEEDED "$program wrote more than $bytes bytes"
    ! said 'out of memory|malloc fail|bad_alloc' || fail LIMIT_EXCEEDED "$program needs more than $megabytes MB of memory"
    case $status in
    125 | 126 | 127 | 129 | 130 | 137 | 143) fail SYSTEM_TRANSIENT "$program was killed or could not start" 75 ;;
    esac
    return "$status"
}

said() { # PATTERN
    LC_ALL=C grep -aqiE "$1" "$folder/said"
}
