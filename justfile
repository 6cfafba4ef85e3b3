# The commands that contributors need. `just` lists them; each runs by hand as well as it is written here.

# Lists the commands.
default:
    @"{{just_executable()}}" --list

# Formats the code.
fmt:
    cargo fmt --all
    cargo fmt --manifest-path backends/cuda/simulator/Cargo.toml

# Checks everything that compiles on this machine.
lint:
    cargo clippy --workspace --all-features --all-targets --locked -- -D warnings
    cargo clippy --manifest-path backends/cuda/simulator/Cargo.toml --workspace --all-targets --locked -- -D warnings

# Runs the tests, or some of them: just test --test caps
test *arguments:
    cargo test --workspace --all-features --locked {{arguments}}

# Runs tests on the simulated CUDA driver: just cuda --test cuda
cuda *arguments:
    VRAMPOOL_SIMULATOR=strict=1 backends/cuda/simulator/run.sh cargo test --workspace --all-features --locked {{arguments}}

# Explores every interleaving of a few threads, and looks for locks among a hit's instructions.
model:
    tests/model.sh
    tests/hit_path.sh

# Lets pools and brokers fail in some fifty ways under a real Prometheus, and compares the alerts; four minutes.
scenarios:
    VRAMPOOL_SCENARIOS=1 cargo test --workspace --all-features --locked --test scenarios -- --nocapture

# Builds the documentation.
doc:
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --all-features --no-deps --locked

# Compares the public API with tests/api, or writes it there: just api --update
api *arguments:
    .ci/api {{arguments}}

# Builds the guide, into docs/book.
guide:
    docs/build.sh

# Lists the devices of this machine.
devices:
    cargo vrampool-all devices

# Measures the pool, or one of the benchmarks: just bench --only hit_pair
bench *arguments:
    cargo vrampool-all bench {{arguments}}

# Checks that the library compiles for other platforms; on Debian.
platforms *arguments:
    .ci/platforms {{arguments}}

# Builds Python wheels for x86-64 and aarch64 into a folder, and checks them: just wheels dist
wheels folder *machines:
    bindings/python/wheels.sh {{folder}} {{machines}}

# Compares lines of code with their budget: just weight --lower, just weight --raise "REASON"
weight *arguments:
    .ci/weight {{arguments}}

# Runs everything that must hold before a change lands; on Debian, as root.
ci:
    .ci/run
