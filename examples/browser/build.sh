#!/usr/bin/env bash
# Builds the page's program into examples/browser/pkg. Needs the target wasm32-unknown-unknown of this machine's Rust, or Debian's
# packages rustc-web, cargo-web, rust-web-src and lld, and installs wasm-bindgen's program of the version that Cargo.lock has.
set -euo pipefail
cd "$(dirname "$0")/../.."

target=wasm32-unknown-unknown
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0
folder=${CARGO_TARGET_DIR:-target}/browser
version=$(sed -n '/^name = "wasm-bindgen"$/{n;s/version = "\(.*\)"/\1/p}' Cargo.lock)
bindgen=${WASM_BINDGEN:-$folder/wasm-bindgen-$version/bin/wasm-bindgen}
if [ ! -x "$bindgen" ]; then
    # Unoptimised: it runs once.
    CARGO_PROFILE_DEV_DEBUG=0 CARGO_TARGET_DIR=$folder cargo install --quiet --debug wasm-bindgen-cli --version "$version" \
        --root "$folder/wasm-bindgen-$version"
fi
if rustup target list --installed 2>/dev/null | grep -qx "$target"; then
    cargo=(cargo)
    std=()
else
    # Debian's compiler, with a standard library from source.
    export RUSTC=/usr/bin/rustc RUSTC_BOOTSTRAP=1
    cargo=(/usr/bin/cargo)
    std=(-Zbuild-std=std,panic_abort)
    for linker in wasm-ld wasm-ld-19 wasm-ld-14; do
        if command -v "$linker" >/dev/null; then
            export CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER=$linker
            break
        fi
    done
fi
CARGO_TARGET_DIR=$folder "${cargo[@]}" build --quiet --locked "${std[@]}" --profile browser --target "$target" -p vrampool-browser
rm -rf examples/browser/pkg
"$bindgen" --target web --no-typescript --out-dir examples/browser/pkg "$folder/$target/browser/vrampool_browser.wasm"
ls -l examples/browser/pkg
