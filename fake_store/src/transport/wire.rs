//! What goes over a connection: frames, and the bytes of transfers between them.
//!
//! ```text
//! master:      ▶ frame(Request)                      ◀ frame(Reply)
//! node, write: ▶ frame(NodeRequest) ▶ chunk ▶ chunk…  ◀ ack ◀ ack…  ◀ end
//! node, read:  ▶ frame(NodeRequest)                  ◀ frame(ReadHead) ◀ bytes… ◀ end
//! ```
//!
//! A frame is its length (4 bytes, little-endian) and that many bytes of postcard. Lengths are bounded and
//! memory grows with what has arrived, not with what was announced: bytes from outside are errors at worst.
//! The writer keeps a window of unacknowledged chunks, so that a caller's memory is read while the node
//! takes it and not long before.

use std::io;

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use springtide::env::ErrorCode;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::{
    faults::Point,
    protocol::{ClientId, Code, SegmentId},
    service::{CHUNK_BYTES_MAX, Tag},
};

/// The longest frame: keys of some MiB fit, as they do in Mooncake.
pub(crate) const FRAME_BYTES_MAX: usize = 16 << 20;

/// How much memory is taken at a time while a frame arrives.
const FRAME_STEP: usize = 64 << 10;

/// Chunks that may be under way without an acknowledgement.
pub(crate) const WINDOW_MAX: u32 = 1024;

/// A transfer asked of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRequest {
    /// Whether the caller's bytes follow, or the node's are wanted.
    pub(crate) write: bool,
    pub(crate) client: ClientId,
    pub(crate) key: String,
    pub(crate) replica: u32,
    pub(crate) segment: SegmentId,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
    /// Bytes of each chunk but the last.
    pub(crate) chunk_bytes: u32,
}

impl NodeRequest {
    pub(crate) fn new(tag: &Tag, chunk_bytes: usize) -> Self {
        Self {
            write: tag.point == Point::Write,
            client: tag.client,
            key: tag.key.clone(),
            replica: tag.replica as u32,
            segment: tag.segment,
            offset: tag.offset,
            bytes: tag.bytes,
            chunk_bytes: chunk_bytes as u32,
        }
    }

    /// The transfer and its chunk length, unless that is out of bounds.
    pub(crate) fn tag(self) -> io::Result<(Tag, usize)> {
        let chunk = self.chunk_bytes as usize;
        if chunk == 0 || chunk > CHUNK_BYTES_MAX {
            let text = format!("expected a chunk of 1 to {CHUNK_BYTES_MAX} bytes, got {chunk}");
            return Err(invalid(text));
        }
        let tag = Tag {
            point: if self.write { Point::Write } else { Point::Read },
            client: self.client,
            key: self.key,
            replica: self.replica as usize,
            segment: self.segment,
            offset: self.offset,
            bytes: self.bytes,
        };
        Ok((tag, chunk))
    }
}

/// What a node says before the bytes of a read: how many follow.
pub(crate) type ReadHead = Result<u64, Code>;

/// What a node says to a writer, and at the end of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ack {
    /// A chunk has been taken.
    Chunk,
    /// All has been taken, and it is where it should be.
    Done,
    /// Nothing more is taken.
    Failed(ErrorCode),
}

impl Ack {
    const BYTES: usize = 5;

    pub(crate) async fn send(self, stream: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let (kind, code) = match self {
            Self::Chunk => (0, 0),
            Self::Done => (1, 0),
            Self::Failed(code) => (2, code.number()),
        };
        let mut bytes = [kind; Self::BYTES];
        bytes[1..].copy_from_slice(&code.to_le_bytes());
        stream.write_all(&bytes).await?;
        stream.flush().await
    }

    pub(crate) async fn receive(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let mut bytes = [0; Self::BYTES];
        stream.read_exact(&mut bytes).await?;
        let [kind, code @ ..] = bytes;
        match kind {
            0 => Ok(Self::Chunk),
            1 => Ok(Self::Done),
            2 => Ok(Self::Failed(ErrorCode::from_number(i32::from_le_bytes(code)))),
            other => {
                Err(invalid(format!("expected an acknowledgement of kind 0 to 2, got {other}")))
            }
        }
    }
}

/// Sends one frame.
pub(crate) async fn send<T: Serialize>(
    stream: &mut (impl AsyncWrite + Unpin),
    message: &T,
) -> io::Result<()> {
    let body = postcard::to_stdvec(message).map_err(|error| invalid(error.to_string()))?;
    if body.len() > FRAME_BYTES_MAX {
        return Err(too_long(body.len()));
    }
    let mut frame = Vec::with_capacity(4 + body.len());
    frame.extend_from_slice(&(body.len() as u32).to_le_bytes());
    frame.extend_from_slice(&body);
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Receives one frame; nothing if the peer has closed the connection between frames.
pub(crate) async fn receive<T: DeserializeOwned>(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<Option<T>> {
    let mut first = [0; 1];
    if stream.read(&mut first).await? == 0 {
        return Ok(None);
    }
    let mut rest = [0; 3];
    stream.read_exact(&mut rest).await?;
    let length = u32::from_le_bytes([first[0], rest[0], rest[1], rest[2]]) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(too_long(length));
    }
    let mut body = Vec::new();
    while body.len() < length {
        let from = body.len();
        body.resize(length.min(from + FRAME_STEP), 0);
        stream.read_exact(&mut body[from..]).await?;
    }
    decode(&body).map(Some)
}

/// The message in a frame; bytes beyond it are an error.
pub(crate) fn decode<T: DeserializeOwned>(body: &[u8]) -> io::Result<T> {
    match postcard::take_from_bytes(body) {
        Ok((message, [])) => Ok(message),
        Ok((_, rest)) => Err(invalid(format!("{} bytes too many in a frame", rest.len()))),
        Err(error) => Err(invalid(error.to_string())),
    }
}

fn too_long(length: usize) -> io::Error {
    invalid(format!("expected a frame of at most {FRAME_BYTES_MAX} bytes, got {length}"))
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::protocol::{
        Call, ClientStatus, NewObject, Readable, Replica, ReplicaConfig, Reply, Request, Segment,
        SoftPin,
    };

    fn messages() -> (Vec<Request>, Vec<Reply>) {
        let keys = vec!["a".to_owned(), "ü\0".to_owned()];
        let config = ReplicaConfig {
            soft_pin: SoftPin::EnableFor(Duration::from_millis(1500)),
            preferred_segments: vec!["n".into()],
            ..ReplicaConfig::default()
        };
        let objects = vec![NewObject { key: "k".into(), bytes: u64::MAX }];
        let segment =
            Segment { id: SegmentId(3), name: "n".into(), endpoint: "n:1".into(), bytes: 9 };
        let calls = [
            Call::PutStart { objects: objects.clone(), config: config.clone() },
            Call::UpsertStart { objects, config },
            Call::PutEnd { keys: keys.clone() },
            Call::PutRevoke { keys: keys.clone() },
            Call::Query { keys: keys.clone() },
            Call::Size { keys: keys.clone() },
            Call::Exist { keys: keys.clone() },
            Call::Remove { keys, force: true },
            Call::RemoveByRegex { pattern: "a.b".into(), force: false },
            Call::RemoveAll { force: false },
            Call::Mount { segment: segment.clone() },
            Call::Unmount { segment: SegmentId(3) },
            Call::Ping,
            Call::Remount { segments: vec![segment] },
        ];
        let replica = Replica {
            segment: SegmentId(1),
            segment_name: "n".into(),
            endpoint: "n:1".into(),
            offset: 7,
            bytes: 8,
        };
        let code = Code(ErrorCode::NoAvailableHandle);
        let replicas = vec![replica];
        let lease_ttl = Duration::from_millis(10_000);
        let replies = [
            Reply::Started(vec![Ok(replicas.clone()), Err(code)]),
            Reply::Done(vec![Ok(()), Err(code)]),
            Reply::Found(vec![Ok(Readable { replicas, lease_ttl }), Err(code)]),
            Reply::Exists(vec![Ok(true), Err(code)]),
            Reply::Removed(Ok(3)),
            Reply::Segment(Err(code)),
            Reply::Pong(ClientStatus::NeedRemount),
        ];
        let client = ClientId(5);
        (calls.map(|call| Request { client, call }).into(), replies.into())
    }

    #[tokio::test(flavor = "current_thread")]
    async fn frames_round_trip() {
        let (requests, replies) = messages();
        let (mut a, mut b) = tokio::io::duplex(1 << 16);
        for request in requests {
            send(&mut a, &request).await.unwrap();
            assert_eq!(receive::<Request>(&mut b).await.unwrap(), Some(request));
        }
        for reply in replies {
            send(&mut a, &reply).await.unwrap();
            assert_eq!(receive::<Reply>(&mut b).await.unwrap(), Some(reply));
        }
        for ack in [Ack::Chunk, Ack::Done, Ack::Failed(ErrorCode::TransferFail)] {
            ack.send(&mut a).await.unwrap();
            assert_eq!(Ack::receive(&mut b).await.unwrap(), ack);
        }
        drop(a);
        assert_eq!(receive::<Reply>(&mut b).await.unwrap(), None);
    }

    #[tokio::test(flavor = "current_thread")]
    async fn lengths_are_bounded_and_ends_are_noticed() {
        let error = receive::<Reply>(&mut &[0xFF; 8][..]).await.unwrap_err().to_string();
        assert_eq!(error, "expected a frame of at most 16777216 bytes, got 4294967295");
        // Announces 16 MiB, sends 3 bytes.
        let error = receive::<Reply>(&mut &[0, 0, 0, 1, 1, 2, 3][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = receive::<Reply>(&mut &[1, 0][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        let error = Ack::receive(&mut &[9, 0, 0, 0, 0][..]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        let key = "k".repeat(FRAME_BYTES_MAX);
        let request = Request { client: ClientId(1), call: Call::Exist { keys: vec![key] } };
        assert!(send(&mut Vec::new(), &request).await.is_err());
    }

    #[test]
    fn chunk_lengths_are_bounded() {
        let request = NodeRequest {
            write: true,
            client: ClientId(1),
            key: "k".into(),
            replica: 0,
            segment: SegmentId(1),
            offset: 0,
            bytes: 1,
            chunk_bytes: 0,
        };
        assert!(request.clone().tag().is_err());
        assert!(NodeRequest { chunk_bytes: u32::MAX, ..request.clone() }.tag().is_err());
        assert!(NodeRequest { chunk_bytes: 1, ..request }.tag().is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            // Neither may panic; what is decoded is what is encoded.
            if let Ok(request) = decode::<Request>(&bytes) {
                let again = postcard::to_stdvec(&request).unwrap();
                prop_assert_eq!(decode::<Request>(&again).unwrap(), request);
            }
            let _any = decode::<Reply>(&bytes);
            let _any = decode::<NodeRequest>(&bytes);
            let _any = decode::<ReadHead>(&bytes);
        }
    }
}
