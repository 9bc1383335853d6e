//! Object headers. Whoever can write to the store can put anything there.

use springtide::{
    connector::{HEADER_BYTES, Header, object_bytes},
    env::Key,
};
use xxhash_rust::xxh3::xxh3_64;

const LEN: usize = HEADER_BYTES as usize;

/// The first byte says whether the rest is given a right magic number, version and checksum, without which
/// hardly any input would come to the fields behind them.
pub fn run(bytes: &[u8]) {
    let Some((seal, rest)) = bytes.split_first() else { return };
    let mut header = [0; LEN];
    let len = rest.len().min(LEN);
    header[..len].copy_from_slice(&rest[..len]);
    if seal & 1 == 1 {
        header[..5].copy_from_slice(b"sEC1\x01");
        let checksum = xxh3_64(&header[..LEN - 8]);
        header[LEN - 8..].copy_from_slice(&checksum.to_le_bytes());
    }
    let Ok(decoded) = Header::decode(&header) else { return };
    assert_eq!(decoded.encode(), header, "one header has one form");
    assert!(object_bytes(&decoded.spec) >= HEADER_BYTES);
    // It is the header of its own tensor, under its own key only.
    let checked = decoded.check(&Key::new("st1/some/key"), &decoded.spec);
    assert!(checked.is_err(), "the digest of a key was guessed");
}
