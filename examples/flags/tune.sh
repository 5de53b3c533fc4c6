#!/bin/sh
# Finds the flags with which a C program runs fastest: whet says what to try, and this loop compiles,
# runs and reports. Usage: tune.sh SESSION [BUDGET]
set -eu
session=$1 budget=${2:-12trials}
here=$(dirname "$0")
space='{"level": ["-O2", "-O0", "-O1", "-O3"], "unroll": ["", "-funroll-loops"],
        "math": ["", "-ffast-math"], "arch": ["", "-march=native"]}'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

value() { printf '%s' "$1" | sed -n "s/.*\"configs\": \[{[^]]*\"$2\": \"\([^\"]*\)\".*/\1/p"; }

while :; do
    asked=$(whet ask "$session" --space "$space" --budget "$budget" --kernel flags)
    id=$(value "$asked" id)
    [ -n "$id" ] || break
    # shellcheck disable=SC2046 # several flags are several words
    if cc $(value "$asked" level) $(value "$asked" unroll) $(value "$asked" math) \
        $(value "$asked" arch) "$here/sum.c" -o "$work/sum" 2> "$work/error"; then
        printf '{"id": "%s", "ns": %s}\n' "$id" "$("$work/sum")"
    else
        printf '{"id": "%s", "status": "build_error", "error": "cc failed"}\n' "$id"
    fi | whet tell "$session"
done
