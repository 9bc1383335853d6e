//! The object format: a 64-byte header, then the payload, in one store object.
//!
//! Header and payload live and die together, so a reader never pairs one with another's. The store may
//! return success with foreign bytes, so a header names its key and carries a checksum of itself and of the
//! payload, or, where instances share a [secret](super::Secret), a seal over both in the place of the two.
//! Everything in an object is untrusted until [`Header::check`] and its [`Proof`] have passed.
//!
//! ```text
//!  0        4   5   6   7   8                    24        32            48         56        64
//!  | magic  | v | d | r | f | shape (4 x u32)    | payload | key digest  | payload  | header  |
//!  | "sEC1" |   |   |   |   |                    | length  | (128 bits)  | checksum | checksum|
//!             version, dtype, rank, flags; all little endian             | seal (128 bits)     |
//! ```

use std::hash::Hasher;

use twox_hash::XxHash3_64;
use xxhash_rust::xxh3::xxh3_64;

use super::seal::SEAL_BYTES;
use crate::env::{DType, Key, MAX_RANK, Shape, TensorSpec};

/// Length of the header in bytes.
pub const HEADER_BYTES: u64 = 64;

const MAGIC: [u8; 4] = *b"sEC1";
const VERSION: u8 = 1;
const FLAG_PAYLOAD_CHECKSUM: u8 = 1;
const FLAG_SEAL: u8 = 2;

/// The part of a header that a seal covers; the rest is the seal.
pub(super) const SEALED_BYTES: usize = HEADER_BYTES as usize - SEAL_BYTES;

/// Length of the whole object that carries this tensor, in bytes.
pub fn object_bytes(spec: &TensorSpec) -> u64 {
    HEADER_BYTES.saturating_add(spec.bytes())
}

/// What an object says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Type and shape of the payload.
    pub spec: TensorSpec,
    /// Digest of the key it was stored under.
    pub key_digest: [u8; 16],
    /// What shows that the payload is the one that was written.
    pub proof: Proof,
}

/// What an object carries to show that its payload is the one that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Nothing: the writer had checksums off.
    None,
    /// xxh3 of the payload: shows damage.
    Checksum(u64),
    /// Keyed digest of header and payload: shows that a holder of the secret wrote them.
    Seal([u8; SEAL_BYTES]),
}

impl From<Option<u64>> for Proof {
    fn from(checksum: Option<u64>) -> Self {
        checksum.map_or(Self::None, Self::Checksum)
    }
}

/// Why an object is not the one that was asked for. Each is a counted miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, thiserror::Error)]
pub enum Rejection {
    /// Not an object of ours.
    #[error("magic differs")]
    Magic,
    /// Written by another version of the format.
    #[error("format version differs")]
    Version,
    /// The header is damaged or contradicts itself.
    #[error("header is damaged")]
    Header,
    /// Bytes of another key.
    #[error("key digest differs")]
    Key,
    /// Another element type.
    #[error("dtype differs")]
    DType,
    /// Another shape than the request expects.
    #[error("shape differs")]
    Shape,
    /// Fewer or more bytes than the header promises.
    #[error("length differs")]
    Length,
    /// The payload's checksum differs.
    #[error("payload checksum differs")]
    Checksum,
    /// Not written by a holder of the reader's secret, or sealed where the reader has none.
    #[error("seal is missing or differs")]
    Seal,
}

impl Rejection {
    /// Every reason.
    pub const ALL: [Self; 9] = [
        Self::Magic,
        Self::Version,
        Self::Header,
        Self::Key,
        Self::DType,
        Self::Shape,
        Self::Length,
        Self::Checksum,
        Self::Seal,
    ];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Magic => "magic",
            Self::Version => "version",
            Self::Header => "header",
            Self::Key => "key",
            Self::DType => "dtype",
            Self::Shape => "shape",
            Self::Length => "length",
            Self::Checksum => "checksum",
            Self::Seal => "seal",
        }
    }
}

impl Header {
    /// The header of a tensor under a key.
    pub fn new(key: &Key, spec: TensorSpec, proof: impl Into<Proof>) -> Self {
        Self { spec, key_digest: key_digest(key), proof: proof.into() }
    }

    /// The header's bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES as usize] {
        let mut bytes = [0; HEADER_BYTES as usize];
        let dims = self.spec.shape.dims();
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = self.spec.dtype as u8;
        bytes[6] = dims.len() as u8;
        bytes[7] = match self.proof {
            Proof::None => 0,
            Proof::Checksum(_) => FLAG_PAYLOAD_CHECKSUM,
            Proof::Seal(_) => FLAG_SEAL,
        };
        for (slot, dim) in bytes[8..24].chunks_exact_mut(4).zip(dims) {
            // Shape refuses dimensions above u32::MAX.
            slot.copy_from_slice(&(*dim as u32).to_le_bytes());
        }
        bytes[24..32].copy_from_slice(&self.spec.bytes().to_le_bytes());
        bytes[32..48].copy_from_slice(&self.key_digest);
        match self.proof {
            Proof::None => {}
            Proof::Checksum(checksum) => bytes[48..56].copy_from_slice(&checksum.to_le_bytes()),
            Proof::Seal(seal) => {
                bytes[SEALED_BYTES..].copy_from_slice(&seal);
                return bytes;
            }
        }
        let checksum = xxh3_64(&bytes[..56]);
        bytes[56..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header. Nothing in it is trusted before its own checksum has passed; of a sealed one, before
    /// the seal has, which takes the payload.
    ///
    /// # Errors
    /// The [`Rejection`] that applies first.
    pub fn decode(bytes: &[u8; HEADER_BYTES as usize]) -> Result<Self, Rejection> {
        if bytes[..4] != MAGIC {
            return Err(Rejection::Magic);
        }
        if bytes[4] != VERSION {
            return Err(Rejection::Version);
        }
        let proof = match bytes[7] {
            0 => Proof::None,
            FLAG_PAYLOAD_CHECKSUM => Proof::Checksum(u64_at(bytes, 48)),
            FLAG_SEAL => {
                let mut seal = [0; SEAL_BYTES];
                seal.copy_from_slice(&bytes[SEALED_BYTES..]);
                Proof::Seal(seal)
            }
            _ => return Err(Rejection::Header),
        };
        let sealed = matches!(proof, Proof::Seal(_));
        if !sealed && u64_at(bytes, 56) != xxh3_64(&bytes[..56]) {
            return Err(Rejection::Header);
        }
        let dtype = DType::from_wire(bytes[5]).ok_or(Rejection::Header)?;
        let rank = usize::from(bytes[6]).min(MAX_RANK + 1);
        let dims: Vec<u64> = bytes[8..24].chunks_exact(4).take(rank).map(u32_le).collect();
        if dims.len() != usize::from(bytes[6]) {
            return Err(Rejection::Header);
        }
        let spec = Shape::new(&dims)
            .and_then(|shape| TensorSpec::new(dtype, shape))
            .map_err(|_| Rejection::Header)?;
        if u64_at(bytes, 24) != spec.bytes() {
            return Err(Rejection::Header);
        }
        let mut key_digest = [0; 16];
        key_digest.copy_from_slice(&bytes[32..48]);
        let header = Self { spec, key_digest, proof };
        // One header has one form: what is unused is zero.
        if header.encode() == *bytes { Ok(header) } else { Err(Rejection::Header) }
    }

    /// Whether this is the header of `key` with exactly the expected type and shape.
    ///
    /// # Errors
    /// The [`Rejection`] that applies first.
    pub fn check(&self, key: &Key, expected: &TensorSpec) -> Result<(), Rejection> {
        if self.key_digest != key_digest(key) {
            return Err(Rejection::Key);
        }
        if self.spec.dtype != expected.dtype {
            return Err(Rejection::DType);
        }
        if self.spec.shape != expected.shape {
            return Err(Rejection::Shape);
        }
        Ok(())
    }
}

/// First 128 bits of the key's blake3 digest.
fn key_digest(key: &Key) -> [u8; 16] {
    let mut digest = [0; 16];
    digest.copy_from_slice(&blake3::hash(key.as_str().as_bytes()).as_bytes()[..16]);
    digest
}

/// Tag of a key for the eviction policy's memory of what it evicted.
pub(super) fn key_tag(key: &Key) -> u64 {
    xxh3_64(key.as_str().as_bytes())
}

/// A checksum of the payload, fed piece by piece in order: xxh3 with 64 bits, by the instructions that this
/// processor has.
#[derive(Default)]
pub struct PayloadChecksum(XxHash3_64);

impl PayloadChecksum {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The checksum of all bytes so far.
    pub fn finish(&self) -> u64 {
        self.0.finish()
    }
}

fn u32_le(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, byte| n << 8 | u64::from(*byte))
}

fn u64_at(bytes: &[u8; HEADER_BYTES as usize], at: usize) -> u64 {
    u32_le(&bytes[at..at + 8])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spec(dims: &[u64]) -> TensorSpec {
        TensorSpec::new(DType::Bf16, Shape::new(dims).unwrap()).unwrap()
    }

    #[test]
    fn round_trips_every_dtype_and_rank() {
        let key = Key::new("st1/n/k");
        for dtype in DType::ALL {
            for rank in 1..=MAX_RANK {
                let shape = Shape::new(&[7, 3, 5, 2][..rank]).unwrap();
                let spec = TensorSpec::new(dtype, shape).unwrap();
                let checksums = [0, u64::MAX].map(Proof::Checksum);
                let seals = [0, 0xFF].map(|byte| Proof::Seal([byte; SEAL_BYTES]));
                for proof in [Proof::None].into_iter().chain(checksums).chain(seals) {
                    let header = Header::new(&key, spec, proof);
                    assert_eq!(Header::decode(&header.encode()), Ok(header));
                    assert_eq!(header.check(&key, &spec), Ok(()));
                }
            }
        }
    }

    #[test]
    fn payload_checksums_are_xxh3_whatever_the_pieces() {
        let bytes: Vec<u8> = (0..5000_u32).map(|i| ((i * i) >> 3) as u8).collect();
        for len in [0, 1, 16, 17, 240, 241, 1024, 1025, 5000] {
            for piece in [1, 7, 64, 1000, 5000] {
                let mut checksum = PayloadChecksum::default();
                bytes[..len].chunks(piece).for_each(|piece| checksum.update(piece));
                assert_eq!(checksum.finish(), xxh3_64(&bytes[..len]), "{len} by {piece}");
            }
        }
    }

    #[test]
    fn any_flipped_bit_is_noticed() {
        let bytes = Header::new(&Key::new("k"), spec(&[4, 8]), Some(9)).encode();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes;
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Header::decode(&damaged).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn another_keys_header_is_refused() {
        let header = Header::new(&Key::new("a"), spec(&[4, 8]), Proof::None);
        assert_eq!(header.check(&Key::new("b"), &spec(&[4, 8])), Err(Rejection::Key));
        assert_eq!(header.check(&Key::new("a"), &spec(&[8, 4])), Err(Rejection::Shape));
    }

    #[test]
    fn empty_payloads_are_described() {
        let header =
            Header::new(&Key::new("a"), spec(&[0, 8]), Some(PayloadChecksum::default().finish()));
        assert_eq!(Header::decode(&header.encode()), Ok(header));
        assert_eq!(object_bytes(&header.spec), HEADER_BYTES);
    }

    proptest! {
        #[test]
        fn decoding_never_panics(bytes in proptest::array::uniform32(any::<u8>()), tail in proptest::array::uniform32(any::<u8>()), seal: bool) {
            let mut all = [0; 64];
            all[..32].copy_from_slice(&bytes);
            all[32..].copy_from_slice(&tail);
            if seal {
                // Past the checksum, so that the fields behind it are reached.
                all[..4].copy_from_slice(&MAGIC);
                all[4] = VERSION;
                let checksum = xxh3_64(&all[..56]);
                all[56..].copy_from_slice(&checksum.to_le_bytes());
            }
            if let Ok(header) = Header::decode(&all) {
                prop_assert_eq!(header.encode(), all);
            }
        }
    }
}
