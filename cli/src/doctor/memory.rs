//! Memory: how much may be pinned, how much is free, and in which pages it comes.

use springtide::size;

use super::{Needs, machine::Machine, report::Finding};

/// The bit of CAP_IPC_LOCK in a set of capabilities.
const IPC_LOCK: u64 = 1 << 14;

/// How much a process may pin.
pub(super) fn pinning(machine: &Machine, needs: &Needs<'_>) -> Finding {
    const CHECK: &str = "memlock";
    let Some(words) = machine.words("proc/self/limits", "Max locked memory") else {
        let text = "the limit is not known: /proc/self/limits cannot be read";
        return Finding::warning(CHECK, text, "mount /proc");
    };
    let limit = words.first().and_then(|soft| soft.parse::<u64>().ok());
    let capabilities = machine.words("proc/self/status", "CapEff:").unwrap_or_default();
    let capabilities = capabilities.first().and_then(|set| u64::from_str_radix(set, 16).ok());
    let needed = needs.bytes();
    let shown = size::show(needed);
    match limit {
        _ if capabilities.is_some_and(|set| set & IPC_LOCK != 0) => {
            Finding::ok(CHECK, "no limit: this process has CAP_IPC_LOCK")
        }
        None => Finding::ok(CHECK, "no limit"),
        Some(limit) if !needs.rdma() => {
            Finding::ok(CHECK, format!("{}; only rdma pins under this limit", size::show(limit)))
        }
        Some(limit) if limit < needed => Finding::problem(
            CHECK,
            format!("{}, but rdma pins {shown} (pool, segment, local buffer)", size::show(limit)),
            "raise it: `ulimit -l unlimited`, LimitMEMLOCK=infinity, docker --ulimit memlock=-1, or grant \
             CAP_IPC_LOCK",
        ),
        Some(limit) => Finding::ok(CHECK, format!("{}, {shown} are pinned", size::show(limit))),
    }
}

/// Large pages: the pool asks for none, but reserved ones are missing elsewhere.
pub(super) fn hugepages(machine: &Machine) -> Finding {
    const CHECK: &str = "hugepages";
    let number = |name: &str| {
        let words = machine.words("proc/meminfo", name)?;
        words.first()?.parse::<u64>().ok()
    };
    let reserved = number("HugePages_Total:").unwrap_or(0);
    let free = number("HugePages_Free:").unwrap_or(0);
    let bytes = number("Hugepagesize:").unwrap_or(0) << 10;
    let mode = |file: &str| {
        let text = machine.text(format!("sys/kernel/mm/transparent_hugepage/{file}"))?;
        Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
    };
    let mode = |file: &str| mode(file).unwrap_or_else(|| "not known".to_owned());
    let transparent =
        format!("transparent: {}, shared: {}", mode("enabled"), mode("shmem_enabled"));
    if reserved == 0 {
        return Finding::ok(CHECK, format!("none reserved, none needed; {transparent}"));
    }
    let unused = size::show(free.saturating_mul(bytes));
    let text = format!(
        "{free} of {reserved} reserved ones are free, {unused} that the pool does not use; {transparent}"
    );
    Finding::ok(CHECK, text)
}

/// Whether pool and store fit into what is free.
pub(super) fn free(machine: &Machine, needs: &Needs<'_>) -> Finding {
    const CHECK: &str = "memory";
    let needed = needs.total_bytes();
    let kib = machine.words("proc/meminfo", "MemAvailable:");
    let kib = kib.and_then(|words| words.first()?.parse::<u64>().ok());
    let Some(available) = kib.map(|kib| kib << 10) else {
        let text = "free memory is not known: /proc/meminfo cannot be read";
        return Finding::warning(CHECK, text, "mount /proc");
    };
    let group = |file: &str| machine.text(format!("sys/fs/cgroup/{file}"))?.parse::<u64>().ok();
    let room = group("memory.max")
        .map(|max| max.saturating_sub(group("memory.current").unwrap_or(0)))
        .filter(|room| *room < available);
    let (free, of) = match room {
        Some(room) => (room, "this container's limit"),
        None => (available, "the machine"),
    };
    let text = format!(
        "{} MiB free within {of}, {} MiB needed (pool, segment, local buffer)",
        free >> 20,
        needed.div_ceil(1 << 20)
    );
    let advice = "lower pool_bytes or segment_bytes, or give it more memory";
    fits(CHECK, free >= needed, text, advice)
}

fn fits(check: &'static str, does: bool, text: String, advice: &'static str) -> Finding {
    match does {
        true => Finding::ok(check, text),
        false => Finding::problem(check, text, advice),
    }
}

/// Whether the pool for loads fits into `/dev/shm`.
pub(super) fn shared(machine: &Machine, needs: &Needs<'_>) -> Finding {
    const CHECK: &str = "/dev/shm";
    let needed = needs.settings.pool_bytes;
    if !needs.loads() {
        return Finding::ok(CHECK, "not used: a producer's pool is memory of its worker");
    }
    match machine.outside.free_bytes(&machine.root.join("dev/shm")) {
        Err(error) => Finding::problem(
            CHECK,
            format!("the pool for loads lies there, and it cannot be used: {error}"),
            "mount a tmpfs there",
        ),
        Ok(free) => {
            let text = format!(
                "{} MiB free, {} MiB needed for the pool for loads",
                free >> 20,
                needed.div_ceil(1 << 20)
            );
            let advice = "enlarge it (docker --shm-size, in Kubernetes an emptyDir with medium Memory) or lower \
                          pool_bytes";
            fits(CHECK, free >= needed, text, advice)
        }
    }
}
