#!/usr/bin/env bash
# No lock, no atomic read-modify-write and no fence among the instructions of a hit: neither an allocation that a thread's
# magazine serves nor a drop that it takes back. And what they may call is the way to the depot, a thread's first visit, the
# refusal in a forked child, and unwinding; nothing else. So on the host device, and on a device that is chosen at run time.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the instructions are looked at on x86-64 only"; exit 0; }

# Optimized as a release is: the library and the backends. What they depend on is what the tests use.
optimized=()
for package in vrampool vrampool-backend vrampool-host vrampool-cuda vrampool-opencl vrampool-wgpu; do
    for setting in opt-level=3 codegen-units=1 debug-assertions=false overflow-checks=false; do
        optimized+=(--config "profile.dev.package.$package.$setting")
    done
done
may_call='magazine::local::take_of_bin|put_in_bin|refuse_after_fork|allocate_past_magazines|release_to_depot|drop_in_place|_Unwind_Resume|panic_in_cleanup'
then_may_call='ThreadCache>?::pop_below|drop_in_place|__rust_dealloc|_Unwind_Resume|panic_in_cleanup'
listing=$(mktemp)
trap 'rm -f "$listing"' EXIT

# What a program consists of, with names in place of the table's entries by which functions of other crates are called.
listing_of() {
    {
        readelf --relocs --wide "$1" | awk '$3 == "R_X86_64_RELATIVE" { print "at", $1, $4 } $3 == "R_X86_64_GLOB_DAT" { print "is", $1, $5 }'
        nm --defined-only --demangle "$1" | awk '{ address = $1; sub(/^[^ ]+ . /, ""); print "named", address, $0 }'
        objdump --disassemble --no-show-raw-insn --demangle "$1"
    } | awk '
        $1 == "at" || $1 == "is" || $1 == "named" {
            entry = $2; value = $0
            sub(/^0+/, "", entry); sub(/^[^ ]+ [^ ]+ /, "", value)
            table[$1, entry] = value
            next
        }
        /(call|jmp) +\*0x[0-9a-f]+\(%rip\) +# / {
            entry = $0; sub(/.*# /, "", entry); sub(/ .*/, "", entry)
            target = table["at", entry]
            name = (("is", entry) in table) ? table["is", entry] : table["named", target]
            sub(/\*0x.*/, (target == "" ? "0" : target) " <" (name == "" ? "unknown" : name) ">")
        }
        { print }'
}

# The instructions of a function, without what fills the place after it.
body_of() {
    awk -v name="$1>:" '
        /^[0-9a-f]+ </ && (at = index($0, name)) && (substr($0, at - 1, 1) == "<" || substr($0, at - 2, 2) == "::") { inside = 1 }
        inside && /^$/ { exit }
        inside && !/\tint3 *$/' "$listing"
}

# Fails if a function, its name and the least number of its instructions given, does what a hit must not do, or calls other functions.
look_at() {
    local function=$1 least=$2 calls=$3 body
    body=$(body_of "$function")
    [ "$(grep -c . <<<"$body")" -gt "$least" ] || { echo "$function: it is not in the program"; exit 1; }
    if grep -nE '\s(lock|xchg|mfence|lfence|sfence|cmpxchg|xadd)(\s|$)' <<<"$body"; then
        echo "$function: a hit has these"
        exit 1
    fi
    # Unwinding frees what a panic leaves; it is no part of a hit.
    if grep -E '\s(call|j[a-z]+)\s+[0-9a-f]+ <' <<<"$body" | grep -vE "<[^>]*$function|$calls"; then
        echo "$function: a hit may call these"
        exit 1
    fi
    echo "$function: $(grep -c . <<<"$body") instructions in all, no lock, no fence, no other calls"
}

examples=(hit_path hit_path_any)
programs=$(cargo build --quiet --locked --workspace --all-features "${examples[@]/#/--example=}" "${optimized[@]}" --message-format=json |
    grep -o '"executable":"[^"]*"' | cut -d '"' -f 4)
for example in "${examples[@]}"; do
    echo "$example"
    # Read to its end each time: a reader that stops early would fail its writer.
    listing_of "$(grep "/$example\$" <<<"$programs")" >"$listing"
    look_at "$example::take" 20 "$may_call"
    look_at "$example::put" 20 "$may_call"
    # What they may call and is still a hit.
    for function in magazine::local::take_of_bin magazine::local::put_in_bin; do
        look_at "$function" 5 "$then_may_call"
    done
done

# A child's hits take the same way as a pool's. The first of each is a miss.
if ! command -v valgrind >/dev/null && [[ ${VRAMPOOL_REQUIRE:-} != *valgrind* ]]; then
    echo "skipped: without valgrind hits of a child are not counted"
    exit 0
fi
run_by() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null --toggle-collect='hit_path::take*' --toggle-collect='hit_path::put*' "$@" 2>&1 |
        awk '/Collected/ { print $NF }'
}
program=$(grep '/hit_path$' <<<"$programs")
of_pool=$(run_by "$program") of_child=$(run_by "$program" child)
[ "$((of_pool > 50000 && of_child * 100 <= of_pool * 105))" = 1 ] || { echo "1,000 hits: $of_pool instructions, of a child $of_child"; exit 1; }
echo "1,000 hits of a child: $of_child instructions, $of_pool of a pool"
