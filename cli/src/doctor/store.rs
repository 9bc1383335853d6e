//! The store: what its client consists of, and whether it can be reached.

use std::{path::Path, time::Duration};

use rustix::fs::Access;
use springtide::{backend::MooncakeConfig, config::StoreSettings, size};

use super::{Needs, machine::Machine, report::Finding};

/// How long the master is given where the settings say not to try it.
const PROBE_LIMIT: Duration = Duration::from_secs(2);

/// The library or the wheel that the store is reached through.
pub(super) fn client(machine: &Machine, needs: &Needs<'_>) -> Finding {
    const CHECK: &str = "mooncake";
    match &needs.settings.store {
        StoreSettings::Disk(_) => Finding::ok(CHECK, "not used: items are kept in a directory"),
        StoreSettings::Mooncake(MooncakeConfig { library: Some(library), .. }) => {
            match machine.outside.library(Some(library)) {
                Ok(path) => {
                    Finding::ok(CHECK, format!("library {path}, all functions of store_c.h"))
                }
                Err(error) => Finding::problem(
                    CHECK,
                    error,
                    "name another library, or leave `library` out to use the Python wheel",
                ),
            }
        }
        StoreSettings::Mooncake(_) => match machine.outside.wheels() {
            Ok(wheels) if wheels.is_empty() => Finding::problem(
                CHECK,
                "the interpreter python3 has no wheel of Mooncake",
                "install mooncake-transfer-engine (mooncake-transfer-engine-non-cuda without CUDA) where vLLM \
                 is, activate that environment, or set `library`",
            ),
            Ok(wheels) => Finding::ok(CHECK, format!("wheel {}", wheels.join(", "))),
            Err(error) => Finding::warning(
                CHECK,
                format!("the wheel is not known: {error}"),
                "run this where vLLM's interpreter is python3",
            ),
        },
    }
}

/// Whether the secret can be read, if there is one.
pub(super) fn secret(needs: &Needs<'_>) -> Option<Finding> {
    const CHECK: &str = "secret_file";
    let path = needs.settings.secret_file.as_ref()?.display();
    Some(match needs.settings.secret() {
        Ok(_) => Finding::ok(CHECK, format!("{path} can be read")),
        Err(error) => Finding::problem(CHECK, error.to_string(), "no instance starts without it"),
    })
}

/// The directory, or what is there of its path: what is missing is made.
fn writable(directory: &Path) -> Result<&Path, String> {
    let there = directory.ancestors().find(|path| path.exists()).ok_or("no such path")?;
    if !there.is_dir() {
        return Err(format!("{} is no directory", there.display()));
    }
    rustix::fs::access(there, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|error| format!("nothing can be made in {}: {error}", there.display()))?;
    Ok(there)
}

/// Whether the store answers.
pub(super) fn reached(machine: &Machine, needs: &Needs<'_>) -> Finding {
    const CHECK: &str = "store";
    let store = match &needs.settings.store {
        StoreSettings::Mooncake(store) => store,
        StoreSettings::Disk(disk) => {
            let (path, wanted) = (disk.directory.display(), disk.capacity_bytes);
            return match writable(&disk.directory)
                .and_then(|there| machine.outside.free_bytes(there))
            {
                Ok(free) if free < wanted => Finding::warning(
                    CHECK,
                    format!(
                        "{path}: {} MiB free, capacity_bytes is {}",
                        free >> 20,
                        size::show(wanted)
                    ),
                    "lower store.disk.capacity_bytes, or name a larger disk",
                ),
                Ok(free) => Finding::ok(CHECK, format!("{path}: {} MiB free", free >> 20)),
                Err(error) => {
                    Finding::problem(CHECK, format!("{path}: {error}"), "name another directory")
                }
            };
        }
    };
    let limit = match store.probe_timeout_ms {
        0 => PROBE_LIMIT,
        limit => Duration::from_millis(limit),
    };
    let master = &store.master;
    match machine.outside.answers(master, limit) {
        Ok(()) => Finding::ok(CHECK, format!("the master at {master} answers")),
        // An instance starts without its store.
        Err(error) => Finding::problem(
            CHECK,
            format!("no mooncake_master answers at {master}: {error}"),
            "start it; is this its rpc_port, and does a firewall let it through? Until then items are encoded \
             locally",
        ),
    }
}
