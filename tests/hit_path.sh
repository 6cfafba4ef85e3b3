#!/usr/bin/env bash
# No lock, no atomic read-modify-write and no fence among the instructions of a hit: neither an allocation that a thread's
# magazine serves nor a drop that it takes back. And what they may call is the way to the depot, a thread's first visit,
# and unwinding; nothing else. So on the host device, and on a device that is chosen at run time; and of a pool that is
# recorded, whose hits may take a way of their own for what is due every so many events.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the instructions are looked at on x86-64 only"; exit 0; }

target=${CARGO_TARGET_DIR:-target}/hit_path
# Between crates nothing is looked at; with it, each crate would have a listing of its own.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_DEBUG=0
# No hit comes by these, which take most of the time.
unoptimized=()
for package in naga wgpu-core wgpu-hal wgpu regex-automata; do
    unoptimized+=(--config "profile.release.package.$package.opt-level=0")
done
may_call='hot4take|put_anew|allocate_past_magazines|release_to_depot|drop_in_place|Unwind_Resume|panic_in_cleanup'
then_may_call='Records::put_recorded|magazine::(put_anew|put_in_lane|take_last|take_from_lane|stow_last)|Rack::(begin_last|stow)|drop_in_place|__rust_dealloc|_Unwind_Resume|panic_in_cleanup'
# A thread's first visit.
then_may_call+='|thread_local::destructors::linux_like::register'
# A recorded hit, and its ways from there: what is due, the lanes, the depot.
recorded='Pool<B>::allocate_recorded Pool<B>::allocate_from_lane Pool<B>::record Records::put_recorded'
then_may_call+='|WeakRecorder::note_allocation>|Records::put_in_time>|Pool<B>::(allocate_from_lane|allocate_unrecorded|record)>'
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

look_at() {
    local example=$1 assembly body half function
    rm -f "$target"/release/examples/"$example"-*.s
    # Cargo does not know that its output is gone.
    touch "examples/$example.rs"
    cargo rustc --quiet --locked --release --all-features --example "$example" --target-dir "$target" "${unoptimized[@]}" -- --emit asm
    assembly=$(echo "$target"/release/examples/"$example"-*.s)

    for half in take put; do
        body=$(awk -v name="^_ZN${#example}${example}${#half}${half}17h" '$0 ~ name && /:$/ { inside = 1 } inside; inside && /\.cfi_endproc/ { exit }' "$assembly")
        [ "$(grep -c . <<<"$body")" -gt 20 ] || { echo "$half: its instructions are not in $assembly"; exit 1; }
        # Unwinding frees what a panic leaves; it is no part of a hit.
        if grep -nE '^\s*(lock|xchg|mfence|lfence|sfence|cmpxchg|xadd)' <<<"$body"; then
            echo "$half: a hit has these"
            exit 1
        fi
        if grep -E '^\s*(callq?|j[a-z]+)\s+\*?_' <<<"$body" | grep -vE "$may_call"; then
            echo "$half: a hit may call these"
            exit 1
        fi
        echo "$half: $(grep -cE '^\s+[a-z]' <<<"$body") instructions in all, no lock, no fence, no other calls"
    done

    # What they may call and is still a hit: other lanes, and another pool's last block. The listing is read to its end: a reader
    # that stops early would fail its writer.
    listing_of "$target"/release/examples/"$example" >"$listing"
    for function in hot::take magazine::take_last magazine::take_from_lane magazine::put_anew magazine::put_in_lane rack::Rack::begin_last rack::Rack::stow $recorded; do
        body=$(awk -v name="::$function>:" 'index($0, name) && /^[0-9a-f]+ </ { inside = 1 } inside && /^$/ { exit } inside' "$listing")
        [ "$(grep -c . <<<"$body")" -gt 5 ] || { echo "$function: it is not in the program"; exit 1; }
        if grep -nE '\s(lock|xchg|mfence|lfence|sfence|cmpxchg|xadd)(\s|$)' <<<"$body"; then
            echo "$function: a hit has these"
            exit 1
        fi
        if grep -E '\s(call|j[a-z]+)\s+[0-9a-f]+ <' <<<"$body" | grep -vE "$function|$then_may_call"; then
            echo "$function: a hit may call these"
            exit 1
        fi
        echo "$function: $(grep -c . <<<"$body") instructions in all, no lock, no fence, no other calls"
    done
}

for example in hit_path hit_path_any; do
    echo "$example"
    look_at "$example"
done
