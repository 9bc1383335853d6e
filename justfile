# The table of contents of the project: `./ci/just --list`. Each recipe is one command or one script of
# ci/, so everything here also runs without just.

set positional-arguments
set shell := ["bash", "-euo", "pipefail", "-c"]

_list:
    @"{{ just_executable() }}" --list

# Run every scenario and 100 random plans in the simulator (--seed, --scenario, --plan, --help)
sim *ARGS:
    cargo run --profile sim --package springtide-sim --bin sim -- "$@"

# Explore small worlds: every order of calls, answers, failures and deadlines (--world NAME, --json)
explore *ARGS:
    cargo run --profile sim --package springtide-sim --bin sim -- explore "$@"

# Show which kinds of fault met which states of a connector (--plans N; --write FILE keeps what was reached)
coverage *ARGS:
    cargo run --profile sim --package springtide-sim --bin sim -- coverage "$@"

# Run the original pull request's design on the same plans: who violates what (--plans N, --scenario NAME, --json)
compare *ARGS:
    cargo run --profile sim --package springtide-sim --bin sim -- compare "$@"

# Find the smallest plan that fails as PLAN does, and print it as a test
minimize PLAN *ARGS:
    cargo run --profile sim --package springtide-sim --bin sim -- minimize "$@"

# Open the timeline of a long run in a headless browser and use it (--shots DIRECTORY leaves pictures)
page *ARGS:
    ci/page "$@"

# Run all that CI runs, in the order of the list in ci/all
test:
    ci/all

# Check the simulator itself: the same plan twice must give the same trace hash
meta *ARGS:
    ci/meta "$@"

# Check formatting, clippy, documentation and shell scripts; warnings are errors
lint:
    ci/lint

# Run unit, property, integration and documentation tests (or those that ARGS select)
unit *ARGS:
    ci/unit "$@"

# Run the connector on the real Mooncake Store, two processes over tcp (ARGS select tests)
real *ARGS:
    ci/real "$@"

# Run vLLM's plug-in without vLLM, against recorded hooks (ARGS select tests)
plugin *ARGS:
    ci/plugin "$@"

# Run the commands of docs/quick-start.md as they are written, in a fresh clone (--list; --vllm for those that need it)
quickstart *ARGS:
    ci/quickstart "$@"

# Run encoder and decoder of real vLLM over the real store, with everything that kills an engine (5 GB; ARGS: sections)
e2e *ARGS:
    ci/e2e "$@"

# Measure requests with each way of sharing encoder outputs, on real vLLM on CPU (ARGS: ways, --rounds N, …)
e2e-bench *ARGS:
    ci/e2e-bench "$@"

# Run the program: bench (a store against the connector on it), config, plan (--help)
springtide *ARGS:
    cargo run --quiet --release --package springtide-cli --bin springtide -- "$@"

# Measure it on the real Mooncake Store over tcp, with all processes on this host (ARGS as for springtide bench)
bench-store *ARGS:
    ci/bench-store "$@"

# Check what only hardware can show, each check if its hardware is here (--require cuda,rdma, --master, --help)
hw *ARGS:
    cargo run --quiet --release --package springtide-cli --bin springtide -- hw "$@"

# Make one archive for a machine with hardware, without Rust and network (--wheel, --out FILE)
hw-bundle *ARGS:
    ci/hw-bundle "$@"

# Compare the fake store with the real one in 20 000 operations over all states (--operations, --seed, --json, --only NAME)
conformance *ARGS:
    ci/conformance --operations 20000 --slow "$@"

# Check sizes, recipes, links and forbidden words, which no compiler looks at
tidy *ARGS:
    ci/tidy "$@"

# Switch known bugs on, one at a time: the simulator must catch each (--list, --only NAME, --json)
mutants *ARGS:
    ci/mutants "$@"

# Prove the shared state: every interleaving of each model, and known bugs that they must find (--list, --only, --more N)
loom *ARGS:
    ci/loom "$@"

# Run the pool and the connector under random schedules of 4 to 8 threads (or the tests that ARGS select)
shuttle *ARGS:
    ci/shuttle "$@"

# Compare pool and checksums with their rivals, as ratios of one run (--quick, --only SUITE, --json)
bench *ARGS:
    cargo run --release --package springtide-benches --bin bench -- "$@"

# Run what touches raw memory under memory checkers, after bugs that they must report (address, thread, valgrind)
sanitize *ARGS:
    ci/sanitize "$@"

# Feed the fuzz targets, after planted bugs: a fixed number of runs, or --runs N, --minutes M, --input FILE, --merge (TARGET...; all if none)
fuzz *ARGS:
    ci/fuzz "$@"

# Show the snapshots that a test run found changed; `just snapshots accept` takes them over
snapshots *ARGS:
    ci/snapshots "$@"

# Format the code
fmt:
    cargo fmt --all

# Build the documentation of all crates, private items too, and say where it is
doc:
    cargo doc --workspace --no-deps --document-private-items
