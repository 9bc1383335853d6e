//! A secret that instances share, so that they read only what one of them has written.
//!
//! Checksums find damage; whoever can write to the store can still write a well-formed object. With a secret,
//! writers seal each object: a keyed blake3 digest over its header and payload. Readers take an object without
//! a seal, or with one that does not fit, for a miss. Two secrets are two namespaces, so instances with
//! different ones never remove each other's objects.

use std::{
    fmt, fs,
    io::{self, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use constant_time_eq::constant_time_eq_16;

/// The fewest bytes that make a secret.
pub const SECRET_BYTES_MIN: usize = 16;

/// The most: a longer file was probably not meant.
pub const SECRET_BYTES_MAX: usize = 4096;

/// Length of a seal in bytes.
pub const SEAL_BYTES: usize = 16;

const SEALS: &str = "springtide 2026-12 seals of objects";
const NAMES: &str = "springtide 2026-12 names of secrets";

/// A secret shared by the instances of a namespace. Its value is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    key: [u8; 32],
    id: [u8; 16],
}

/// A secret that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The file could not be read.
    #[error("the secret in {path} cannot be read: {error}")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Others than its owner may read or write the file.
    #[error(
        "the secret in {path} has mode {mode:03o}, expected none for others: chmod o-rwx {path}"
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// Too few or too many bytes.
    #[error("the secret has {got} bytes, expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}")]
    Length {
        /// Its length without blanks at its ends.
        got: usize,
    },
}

impl Secret {
    /// A secret from its bytes. Blanks and line ends around it do not count.
    ///
    /// # Errors
    /// [`SecretError::Length`].
    pub fn new(bytes: &[u8]) -> Result<Self, SecretError> {
        let bytes = bytes.trim_ascii();
        if !(SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Err(SecretError::Length { got: bytes.len() });
        }
        let mut id = [0; 16];
        id.copy_from_slice(&blake3::derive_key(NAMES, bytes)[..16]);
        Ok(Self { key: blake3::derive_key(SEALS, bytes), id })
    }

    /// Reads a secret from a file that others may not touch.
    ///
    /// # Errors
    /// [`SecretError`]; the file's content is in none of them.
    pub fn read(path: &Path) -> Result<Self, SecretError> {
        let unreadable = |error| SecretError::Unreadable { path: path.to_owned(), error };
        // What is no file may keep its reader waiting.
        if !fs::metadata(path).map_err(unreadable)?.is_file() {
            return Err(unreadable(io::Error::other("is no file")));
        }
        let file = fs::File::open(path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o777;
        if mode & 0o007 != 0 {
            return Err(SecretError::Exposed { path: path.to_owned(), mode });
        }
        let mut bytes = Vec::new();
        // Room for a line's end behind the longest, and a byte to notice that there is more.
        let limit = SECRET_BYTES_MAX as u64 + 3;
        file.take(limit).read_to_end(&mut bytes).map_err(unreadable)?;
        Self::new(&bytes)
    }

    /// Tells secrets apart and tells nothing about them: part of the namespace.
    pub(super) fn id(&self) -> &[u8] {
        &self.id
    }

    /// Begins a seal.
    pub(super) fn sealer(&self) -> Sealer {
        Sealer(Box::new(blake3::Hasher::new_keyed(&self.key)))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A seal being made, fed piece by piece in order. Boxed: its state is two kilobytes.
pub(super) struct Sealer(Box<blake3::Hasher>);

impl Sealer {
    /// Takes the next bytes.
    pub(super) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The seal of all bytes so far.
    pub(super) fn finish(&self) -> [u8; SEAL_BYTES] {
        let mut seal = [0; SEAL_BYTES];
        seal.copy_from_slice(&self.0.finalize().as_bytes()[..SEAL_BYTES]);
        seal
    }
}

/// Compares two seals in a time that does not tell how much of them is equal.
pub(super) fn same(one: &[u8; SEAL_BYTES], other: &[u8; SEAL_BYTES]) -> bool {
    constant_time_eq_16(one, other)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"sixteen bytes or more";

    #[test]
    fn blanks_around_a_secret_do_not_count() {
        let line = [TEXT, b"\r\n"].concat();
        assert_eq!(Secret::new(TEXT).unwrap(), Secret::new(&line).unwrap());
        assert_ne!(Secret::new(TEXT).unwrap(), Secret::new(b"sixteen bytes or less").unwrap());
    }

    #[test]
    fn lengths_are_bounded() {
        for (len, fits) in [(0, false), (15, false), (16, true), (4096, true), (4097, false)] {
            assert_eq!(Secret::new(&vec![b'x'; len]).is_ok(), fits, "{len}");
        }
        assert_eq!(
            Secret::new(b"short").unwrap_err().to_string(),
            "the secret has 5 bytes, expected 16 to 4096"
        );
    }

    #[test]
    fn nothing_shows_a_secret() {
        let secret = Secret::new(TEXT).unwrap();
        assert_eq!(format!("{secret:?}"), "Secret(..)");
        assert!(secret.id() != &secret.key[..16]);
    }

    #[test]
    fn seals_do_not_depend_on_the_pieces_and_do_on_the_secret() {
        let seal = |secret: &[u8], pieces: &[&[u8]]| {
            let mut sealer = Secret::new(secret).unwrap().sealer();
            pieces.iter().for_each(|piece| sealer.update(piece));
            sealer.finish()
        };
        let whole = seal(TEXT, &[b"header and payload"]);
        assert!(same(&whole, &seal(TEXT, &[b"header ", b"and payload"])));
        assert!(!same(&whole, &seal(b"sixteen other bytes", &[b"header and payload"])));
        assert!(!same(&whole, &seal(TEXT, &[b"header and payloae"])));
    }

    #[test]
    fn files_that_others_can_read_are_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        let missing = Secret::read(&path).unwrap_err().to_string();
        assert!(missing.contains("cannot be read: No such file"), "{missing}");
        fs::write(&path, TEXT).unwrap();
        for (mode, fits) in [(0o600, true), (0o640, true), (0o644, false), (0o602, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            let read = Secret::read(&path);
            assert_eq!(read.is_ok(), fits, "{mode:o}");
            if let Err(error) = read {
                assert!(error.to_string().contains(&format!("has mode {mode:03o}")), "{error}");
            }
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, vec![b'x'; 100_000]).unwrap();
        assert!(matches!(Secret::read(&path), Err(SecretError::Length { got: 4099 })));
    }
}
