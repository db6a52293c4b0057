#!/bin/sh
# Everything that needs a GPU, on a machine that has one: kernels, the engine's leases in VRAM, the computation with its
# golden cases, placements and times, compute-sanitizer where it is installed, and steps of a large model. A short table
# comes last; exit code 1 where something failed. Run from the repository's root.
#
#   tests/device.sh build DIR    builds the programs and copies them, stripped, to DIR: needs Rust, and no GPU
#   tests/device.sh run DIR      runs them: needs a GPU, and no Rust; what they print is kept in DIR/log
#   tests/device.sh              both, in target/device
set -eu

# The program of a package's test.
program() {
    built=$(cargo test --release --no-run -p "$1" --test "$2" 2>&1) || { echo "$built" >&2 && exit 1; }
    echo "$built" | sed -n 's/^ *Executable .*(\(.*\))$/\1/p'
}

build() {
    mkdir -p "$1"
    strip -o "$1/kernels" "$(program mt-kernels device)"
    strip -o "$1/engine" "$(program mt-engine device)"
    strip -o "$1/trainer" "$(program mt-tests gpu)"
    cargo build --release -p mt-tools
    strip -o "$1/mt" "${CARGO_TARGET_DIR:-target}/release/mt"
}

# Runs a part and adds its line to the table: name, verdict, seconds, and the last line that it printed.
part() {
    name=$1 begin=$(date +%s)
    shift
    file=$log/$(echo "$name" | tr ' /' '--').txt
    if "$@" >"$file" 2>&1; then verdict=ok; else verdict=FAILED failed=1; fi
    seconds=$(($(date +%s) - begin))
    printf '%-34s %-7s %4d s  %s\n' "$name" $verdict $seconds "$(tail -n 1 "$file" | cut -c1-90)" >>"$log/table"
}

# Steps of a 7 B model with random weights, all of its state in RAM; with what else is asked for.
large() {
    rows=$1
    shift
    rm -rf "$log/run"
    "$dir/mt" train --shape 7b --data synthetic --seq-len 1024 --batch "$rows" --steps 4 --device cuda --vram 40GiB \
        --ram 118GiB --durability none --discard --run "$log/run" --profile tools/profiles/h200.json "$@"
}

run() {
    dir=$1 log=$1/log failed=0
    rm -rf "$log"
    mkdir -p "$log"
    for name in state rows products attention; do
        part "kernels: $name" "$dir/kernels" $name
        part "kernels: $name, times" "$dir/kernels" $name-times
    done
    part "engine: leases in VRAM" "$dir/engine"
    for name in layers golden bits placement speed; do part "trainer: $name" "$dir/trainer" $name; done
    if command -v compute-sanitizer >/dev/null; then
        for name in state rows products attention; do
            part "memcheck: $name" compute-sanitizer --tool memcheck --error-exitcode 1 "$dir/kernels" $name
        done
        for name in state rows products attention-small; do
            part "racecheck: $name" compute-sanitizer --tool racecheck --error-exitcode 1 "$dir/kernels" $name
        done
    else
        echo "skipped: compute-sanitizer is not installed" >>"$log/table"
    fi
    if [ "$(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo)" -gt 125000000 ]; then
        for rows in 8 32; do
            part "7 B, $rows rows of 1,024" large $rows
            part "7 B, $rows rows, no clipping" large $rows --max-grad-norm off --no-nan-guard
        done
    else
        echo "skipped: steps of 7 B parameters need 118 GiB of RAM" >>"$log/table"
    fi
    grep -h '^time' "$log"/*.txt || true
    grep -h '^FAIL' "$log"/*.txt || true
    cat "$log/table"
    return $failed
}

dir=${2:-target/device}
case ${1:-both} in
    build) build "$dir" ;;
    run) run "$dir" ;;
    both) build "$dir" && run "$dir" ;;
    *) sed -n '2,10s/^# \{0,1\}//p' "$0" && exit 2 ;;
esac
