//! Proofs over objects in pool memory, computed in slices so that a large item delays nothing else.

use super::{
    object::{HEADER_BYTES, Header, PayloadChecksum, Proof, Rejection, SEALED_BYTES},
    seal::{self, SEAL_BYTES, Sealer, Secret},
};
use crate::{
    env::{Key, TensorSpec, Witness},
    pool::Lease,
};

/// Bytes between two points where other tasks may run: 1 MiB is about 50-100 µs of hashing.
const SLICE: usize = 1 << 20;

/// The proof of an object being made, fed its payload piece by piece in order.
#[expect(clippy::large_enum_variant, reason = "one an item: a box would be an allocation for each")]
pub(super) enum Proving {
    /// None is wanted.
    None,
    Checksum(PayloadChecksum),
    /// Has seen the header.
    Seal(Sealer),
}

impl Proving {
    /// Begins the proof of an object: a seal with the secret if there is one, otherwise a checksum if that is
    /// wanted.
    pub(super) fn begin(
        key: &Key,
        spec: TensorSpec,
        secret: Option<&Secret>,
        checksum: bool,
    ) -> Self {
        match secret {
            Some(secret) => {
                let open = Header::new(key, spec, Proof::Seal([0; SEAL_BYTES])).encode();
                Self::sealing(secret, &open)
            }
            None if checksum => Self::Checksum(PayloadChecksum::default()),
            None => Self::None,
        }
    }

    fn sealing(secret: &Secret, header: &[u8; HEADER_BYTES as usize]) -> Self {
        let mut sealer = secret.sealer();
        sealer.update(&header[..SEALED_BYTES]);
        Self::Seal(sealer)
    }

    /// Feeds it the payload of the object in `lease`.
    pub(super) async fn over(mut self, lease: &Lease) -> Self {
        if !matches!(self, Self::None) {
            feed(lease, |slice| self.see(slice)).await;
        }
        self
    }

    /// The proof of what it has been fed.
    pub(super) fn finish(&self) -> Proof {
        match self {
            Self::None => Proof::None,
            Self::Checksum(checksum) => Proof::Checksum(checksum.finish()),
            Self::Seal(sealer) => Proof::Seal(sealer.finish()),
        }
    }
}

impl Witness for Proving {
    fn see(&mut self, bytes: &[u8]) {
        match self {
            Self::None => {}
            Self::Checksum(checksum) => checksum.update(bytes),
            Self::Seal(sealer) => sealer.update(bytes),
        }
    }
}

/// Whether the object in `lease`, of which `header` is the decoded header, is as it was written. With a
/// secret, only a seal shows that; without, a sealed object cannot be checked and is refused.
pub(super) async fn prove(
    header: &Header,
    lease: &Lease,
    secret: Option<&Secret>,
    checksum: bool,
) -> Result<(), Rejection> {
    match (secret, header.proof) {
        (Some(secret), Proof::Seal(expected)) => {
            match Proving::sealing(secret, &header.encode()).over(lease).await.finish() {
                Proof::Seal(seal) if seal::same(&seal, &expected) => Ok(()),
                _ => Err(Rejection::Seal),
            }
        }
        (Some(_), _) | (None, Proof::Seal(_)) => Err(Rejection::Seal),
        (None, Proof::Checksum(expected)) if checksum && checksum_of(lease).await != expected => {
            Err(Rejection::Checksum)
        }
        (None, _) => Ok(()),
    }
}

async fn checksum_of(lease: &Lease) -> u64 {
    let mut checksum = PayloadChecksum::default();
    feed(lease, |slice| checksum.update(slice)).await;
    checksum.finish()
}

/// Feeds the object's bytes after its header to `take`, in order.
async fn feed(lease: &Lease, mut take: impl FnMut(&[u8]) + Send) {
    let mut skip = HEADER_BYTES as usize;
    for segment in lease.segments() {
        let from = skip.min(segment.len());
        skip -= from;
        for slice in segment[from..].chunks(SLICE) {
            take(slice);
            if slice.len() == SLICE {
                tokio::task::yield_now().await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        env::{DType, Shape},
        pool::{Contiguity, Pool, PoolConfig},
    };

    /// An object of several extents in the memory of a pool, as a writer with this secret makes it.
    async fn written(pool: &Pool, secret: Option<&Secret>, checksum: bool) -> (Lease, Header) {
        let spec = TensorSpec::new(DType::Bf16, Shape::new(&[300, 8]).unwrap()).unwrap();
        let len = HEADER_BYTES + spec.bytes();
        let mut lease = pool.allocate(len, Contiguity::Extents).unwrap();
        let payload: Vec<u8> = (0..spec.bytes()).map(|n| (n % 251) as u8).collect();
        lease.write_at(HEADER_BYTES, &payload);
        let key = Key::new("k");
        let proving = Proving::begin(&key, spec, secret, checksum).over(&lease).await;
        let header = Header::new(&key, spec, proving.finish());
        lease.write_at(0, &header.encode());
        (lease, Header::decode(&header.encode()).unwrap())
    }

    #[tokio::test]
    async fn who_believes_what() {
        let pool = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) };
        let pool = Pool::new(&pool).unwrap();
        let [ours, theirs] = [b"the secret of ours", b"the one of theirs."];
        let [ours, theirs] = [ours, theirs].map(|bytes| Secret::new(bytes).unwrap());
        let seal = Err(Rejection::Seal);
        for (writer, reader, expected) in [
            (None, None, Ok(())),
            (Some(&ours), Some(&ours), Ok(())),
            (Some(&theirs), Some(&ours), seal),
            (None, Some(&ours), seal),
            (Some(&theirs), None, seal),
        ] {
            for checksum in [true, false] {
                let (lease, header) = written(&pool, writer, checksum).await;
                assert_eq!(prove(&header, &lease, reader, checksum).await, expected);
            }
        }
    }

    #[tokio::test]
    async fn one_byte_is_enough_to_be_refused() {
        let pool = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) };
        let pool = Pool::new(&pool).unwrap();
        let secret = Secret::new(b"the secret of ours").unwrap();
        for (secret, reason) in [(None, Rejection::Checksum), (Some(&secret), Rejection::Seal)] {
            let (mut lease, header) = written(&pool, secret, true).await;
            for at in [HEADER_BYTES, 575, 576, lease.len() - 1] {
                let mut byte = [0];
                lease.read_at(at, &mut byte);
                lease.write_at(at, &[byte[0] ^ 1]);
                assert_eq!(prove(&header, &lease, secret, true).await, Err(reason), "at {at}");
                lease.write_at(at, &byte);
                assert_eq!(prove(&header, &lease, secret, true).await, Ok(()));
            }
        }
    }

    #[tokio::test]
    async fn a_seal_covers_what_the_header_says() {
        let pool = PoolConfig { unit_payload: 512, ..PoolConfig::with_bytes(64 * 576) };
        let pool = Pool::new(&pool).unwrap();
        let secret = Secret::new(b"the secret of ours").unwrap();
        let (lease, header) = written(&pool, Some(&secret), true).await;
        let spec = TensorSpec::new(DType::F16, header.spec.shape).unwrap();
        let other = Header { spec, ..header };
        assert_eq!(prove(&other, &lease, Some(&secret), true).await, Err(Rejection::Seal));
        let other = Header { key_digest: [7; 16], ..header };
        assert_eq!(prove(&other, &lease, Some(&secret), true).await, Err(Rejection::Seal));
    }
}
