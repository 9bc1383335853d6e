//! A region that other processes map: what a mapper sees, and what becomes of the file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use springtide::pool::{
    Backing, Contiguity, Descriptor, Extent, Mapper, PREPARED_PREFIX, Pin, Pool, PoolConfig,
    PoolError, RegionError, StaleHandle, UNIT_HEADER,
};

const UNIT: u64 = 512 + UNIT_HEADER;

/// A path of this test alone, removed when it ends.
struct TestFile(PathBuf);

impl TestFile {
    fn new(test: &str) -> Self {
        Self(PathBuf::from(format!("/dev/shm/springtide-{}-{test}", std::process::id())))
    }

    fn config(&self, units: u64) -> PoolConfig {
        PoolConfig {
            unit_payload: 512,
            backing: Backing::Shared(self.0.clone()),
            ..PoolConfig::with_bytes(units * UNIT)
        }
    }

    fn pool(&self) -> Pool {
        Pool::new(&self.config(13)).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        // Most tests leave no file.
        fs::remove_file(&self.0).unwrap_or_default();
    }
}

fn publish(pool: &Pool, bytes: &[u8]) -> Pin {
    let mut lease = pool.allocate(bytes.len() as u64, Contiguity::Extents).unwrap();
    lease.write_at(0, bytes);
    lease.publish(1)
}

fn read(mapper: &Mapper, descriptor: &Descriptor) -> Result<Vec<u8>, StaleHandle> {
    let view = mapper.view(descriptor)?;
    let mut bytes = vec![0; view.len() as usize];
    view.read_at(0, &mut bytes);
    view.check()?;
    Ok(bytes)
}

#[test]
fn a_mapper_reads_what_the_owner_pinned_until_it_is_gone() {
    let file = TestFile::new("reads");
    let pool = file.pool();
    let mapper = Mapper::open(&file.0).unwrap();
    assert_eq!(mapper.region().len(), 13 * UNIT);
    assert_ne!(mapper.region().base(), pool.region().base(), "two mappings");
    let bytes: Vec<u8> = (0..7 * UNIT).map(|at| (at % 253) as u8).collect();
    let pin = publish(&pool, &bytes);
    let descriptor = pin.descriptor();
    assert_eq!(descriptor.extents.len(), 3);
    let travelled: Descriptor =
        serde_json::from_str(&serde_json::to_string(&descriptor).unwrap()).unwrap();
    assert_eq!(read(&mapper, &travelled).unwrap(), bytes);
    let view = mapper.view(&descriptor).unwrap();
    drop(pin);
    view.check().unwrap();
    pool.discard(descriptor.handle).unwrap();
    let stale = StaleHandle { handle: descriptor.handle, found: Some(1) };
    assert_eq!(view.check(), Err(stale));
    assert_eq!(read(&mapper, &descriptor), Err(stale));
    let again = publish(&pool, &bytes);
    assert_eq!(again.handle().index(), descriptor.handle.index());
    assert_eq!(view.check(), Err(stale), "the same place under another generation");
    assert_eq!(read(&mapper, &again.descriptor()).unwrap(), bytes);
}

#[test]
fn descriptors_that_do_not_fit_the_region_are_refused() {
    let file = TestFile::new("misfits");
    let pool = file.pool();
    let mapper = Mapper::open(&file.0).unwrap();
    let good = publish(&pool, &[1; 100]).descriptor();
    mapper.view(&good).unwrap();
    let outside = StaleHandle { handle: good.handle, found: None };
    for extent in [
        Extent { offset: 13 * UNIT - 99, len: 100 },
        Extent { offset: u64::MAX - 50, len: 100 },
        Extent { offset: 0, len: 99 },
    ] {
        let mut bad = good.clone();
        bad.extents[0] = extent;
        assert_eq!(mapper.view(&bad).unwrap_err(), outside, "{extent:?}");
    }
    let larger = Pool::new(&PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * UNIT) });
    let larger = larger.unwrap();
    let _first = larger.allocate(16 * UNIT, Contiguity::Required).unwrap();
    let mut foreign = publish(&larger, &[1; 100]).descriptor();
    foreign.extents[0].offset = 0;
    assert_eq!(mapper.view(&foreign).unwrap_err().found, None, "its unit is not in this region");
}

#[test]
fn an_owner_that_ends_takes_the_file_and_every_handle_with_it() {
    let file = TestFile::new("ends");
    let pool = file.pool();
    let mapper = Mapper::open(&file.0).unwrap();
    let descriptor = publish(&pool, b"bytes").descriptor();
    let view = mapper.view(&descriptor).unwrap();
    drop(pool);
    assert_eq!(view.check(), Err(StaleHandle { handle: descriptor.handle, found: None }));
    assert!(!file.0.exists());
    assert!(matches!(
        Mapper::open(&file.0),
        Err(PoolError::Region(RegionError::Io { action: "open", .. }))
    ));
}

#[test]
fn a_live_owner_keeps_its_file() {
    let file = TestFile::new("keeps");
    let pool = file.pool();
    let refused = Pool::new(&file.config(4)).unwrap_err();
    assert!(matches!(refused, PoolError::Region(RegionError::InUse { .. })), "{refused}");
    let pin = publish(&pool, b"bytes");
    assert_eq!(read(&Mapper::open(&file.0).unwrap(), &pin.descriptor()).unwrap(), b"bytes");
    // An owner whose file has no name any more leaves the next owner's alone.
    pool.unlink().unwrap();
    assert!(!file.0.exists());
    let next = file.pool();
    drop((pool, pin));
    assert!(file.0.exists());
    drop(next);
    assert!(!file.0.exists());
}

#[test]
fn a_file_that_a_dead_owner_left_is_retired_and_replaced() {
    let (live, left) = (TestFile::new("live"), TestFile::new("left"));
    let pool = live.pool();
    let descriptor = publish(&pool, b"bytes").descriptor();
    // What a killed process leaves: a region without a lock.
    fs::copy(&live.0, &left.0).unwrap();
    let mapper = Mapper::open(&left.0).unwrap();
    let view = mapper.view(&descriptor).unwrap();
    let successor = Pool::new(&left.config(20)).unwrap();
    assert_eq!(view.check().unwrap_err().found, None, "the old mapping is dead");
    assert_eq!(Mapper::open(&left.0).unwrap().region().len(), 20 * UNIT);
    successor.verify().unwrap();
}

#[test]
fn files_that_are_no_regions_are_refused_and_left_alone() {
    let file = TestFile::new("strangers");
    for (text, what) in [
        (vec![], "length in bytes is 0"),
        (vec![7; 100], "length in bytes is 100"),
        (vec![0; 8192], "magic number is 0"),
    ] {
        fs::write(&file.0, &text).unwrap();
        let errors = [Mapper::open(&file.0).unwrap_err(), Pool::new(&file.config(4)).unwrap_err()];
        for error in errors {
            let PoolError::Region(RegionError::Format { .. }) = &error else { panic!("{error}") };
            assert!(error.to_string().contains(what), "{error}");
        }
        assert_eq!(fs::read(&file.0).unwrap(), text);
    }
    // A region cut short, or of another unit.
    let whole = TestFile::new("whole");
    let pool = whole.pool();
    let mut bytes = fs::read(&whole.0).unwrap();
    let unit = bytes.len() - 64 + 8;
    bytes[unit + 2] = 1;
    fs::write(&file.0, &bytes).unwrap();
    let error = Mapper::open(&file.0).unwrap_err().to_string();
    assert!(error.contains("length in bytes"), "{error}");
    drop(pool);
}

#[test]
fn memory_that_is_not_there_is_an_error_and_leaves_no_file() {
    let file = TestFile::new("huge");
    let config =
        PoolConfig { backing: Backing::Shared(file.0.clone()), ..PoolConfig::with_bytes(32 << 40) };
    let error = Pool::new(&config).unwrap_err();
    assert!(error.to_string().contains("cannot reserve memory for"), "{error}");
    assert!(!file.0.exists());
}

const REGION_VARIABLE: &str = "SPRINGTIDE_TEST_REGION";
const DESCRIPTOR_VARIABLE: &str = "SPRINGTIDE_TEST_DESCRIPTOR";

#[test]
fn another_process_reads_the_same_bytes() {
    if let Ok(path) = std::env::var(REGION_VARIABLE) {
        return read_as_child(Path::new(&path));
    }
    let file = TestFile::new("child");
    let pool = file.pool();
    let pin = publish(&pool, &[0xC5; 3000]);
    let child = || {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "another_process_reads_the_same_bytes"])
            .env(REGION_VARIABLE, &file.0)
            .env(DESCRIPTOR_VARIABLE, serde_json::to_string(&pin.descriptor()).unwrap());
        command.output().unwrap().status.success()
    };
    assert!(child());
    pool.discard(pin.handle()).unwrap();
    assert!(child(), "pinned, it stays");
    let mut again = pool.allocate(3000, Contiguity::Extents).unwrap();
    again.write_at(0, &[0; 3000]);
    assert!(child(), "other bytes elsewhere change nothing");
}

/// What the other process does.
fn read_as_child(path: &Path) {
    let descriptor = std::env::var(DESCRIPTOR_VARIABLE).unwrap();
    let descriptor: Descriptor = serde_json::from_str(&descriptor).unwrap();
    let bytes = read(&Mapper::open(path).unwrap(), &descriptor).unwrap();
    assert_eq!(bytes, [0xC5; 3000]);
}

/// A prepared region's path, whose name begins as those that are swept do.
fn prepared(test: &str) -> TestFile {
    let name = format!("{PREPARED_PREFIX}{}-{test}", std::process::id());
    TestFile(Path::new("/dev/shm").join(name))
}

#[test]
fn mappers_that_come_first_share_the_region_that_its_owner_adopts() {
    let file = prepared("adopts");
    let config = file.config(13);
    let ranks = [(); 2].map(|()| Mapper::prepare(&file.0, &config).unwrap());
    assert!(ranks.iter().all(|rank| !rank.is_owned()));
    let pool = file.pool();
    assert!(ranks.iter().all(Mapper::is_owned));
    assert!(!file.0.exists(), "the memory now goes with its last process");
    let pin = publish(&pool, &[7; 1000]);
    for rank in &ranks {
        assert_eq!(read(rank, &pin.descriptor()).unwrap(), [7; 1000]);
    }
    // Another instance under the same name has a region of its own.
    let other = Mapper::prepare(&file.0, &config).unwrap();
    assert!(!other.is_owned());
    assert!(other.view(&pin.descriptor()).is_err(), "nothing was ever written there");
}

#[test]
fn sizes_that_differ_are_found_at_the_start() {
    let file = prepared("sizes");
    let _mapper = Mapper::prepare(&file.0, &file.config(13)).unwrap();
    for error in [
        Pool::new(&file.config(14)).unwrap_err(),
        Mapper::prepare(&file.0, &file.config(14)).unwrap_err(),
    ] {
        let expected = "number of units is 13, expected 14";
        assert!(error.to_string().ends_with(expected), "{error}");
    }
    assert!(file.0.exists(), "the good one is still there");
    let pool = file.pool();
    assert_eq!(pool.region().units(), 13);
}

#[test]
fn a_region_with_an_owner_is_not_prepared() {
    let file = prepared("owned");
    let _pool = file.pool();
    let error = Mapper::prepare(&file.0, &file.config(13)).unwrap_err();
    assert!(matches!(error, PoolError::Region(RegionError::InUse { .. })), "{error}");
}

#[test]
fn what_dead_processes_prepared_is_swept() {
    let (left, next) = (prepared("left"), prepared("next"));
    let held = prepared("held");
    let _held = Mapper::prepare(&held.0, &held.config(13)).unwrap();
    // A process that ends without its destructors, as one that was killed.
    let mapper = Mapper::prepare(&left.0, &left.config(13)).unwrap();
    drop(mapper);
    assert!(left.0.exists(), "a name that nobody took away");
    let _next = Mapper::prepare(&next.0, &next.config(13)).unwrap();
    assert!(!left.0.exists());
    assert!(held.0.exists() && next.0.exists(), "these have a process");
}

#[test]
fn many_mappers_at_once_agree_on_one_file() {
    for round in 0..20 {
        let file = prepared(&format!("race-{round}"));
        let config = file.config(13);
        let prepare = || Mapper::prepare(&file.0, &config).unwrap();
        let mappers: Vec<Mapper> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(prepare)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let pool = Pool::new(&config).unwrap();
        let pin = publish(&pool, &[9; 700]);
        for mapper in mappers {
            assert_eq!(read(&mapper, &pin.descriptor()).unwrap(), [9; 700], "round {round}");
        }
    }
}
