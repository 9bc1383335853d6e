//! A store handle that cannot be misused.
//!
//! The library crashes, or takes the process down, when a handle is used before its setup or after its
//! destruction, when it is destroyed under a running call, and on some arguments. Here a [`Client`] exists
//! only when its setup has succeeded; a gate counts its running calls and refuses new ones once a close
//! has begun; and every argument is checked before it is passed on. A misuse is an error value.
//!
//! Two threads are made for the library: one that creates and sets the handle up, since creation blocks
//! signals in its thread for good, and one that destroys it, since that takes up to 20 s with a dead
//! master. Calls run on the caller's thread and block it: up to 60 s in a transfer, 30 s at a master that
//! hangs, longer still for a copy within the process. They have no time limit of their own.

use std::{
    ffi::c_int,
    fmt, io,
    ptr::NonNull,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use crate::{
    api::Api,
    code::{CallError, Code},
    gate::{Gate, Inside},
    library::Library,
    setup::{Arguments, Setup, SetupError},
    types::Store,
};

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The setup would end the process, or cannot be passed on.
    #[error("{0}")]
    Setup(#[from] SetupError),
    /// The library has no handle to give.
    #[error("the library could not create a store handle")]
    Create,
    /// The library refused the setup: a dead master, an unknown protocol, a segment of a size that cannot
    /// be had. It does not say which.
    #[error(
        "setup failed with {code} (tried local_hostname {:?}, metadata_server {:?}, master {:?}, protocol \
         {:?}, device {:?}, a segment of {} and a local buffer of {} bytes)",
        setup.local_hostname, setup.metadata_server, setup.master, setup.protocol, setup.device,
        setup.segment_bytes, setup.local_buffer_bytes
    )]
    Refused {
        /// Its code.
        code: Code,
        /// What was tried.
        setup: Box<Setup>,
    },
    /// No thread to set it up on.
    #[error("no thread for the store's setup: {0}")]
    Thread(#[from] io::Error),
}

/// A client of a Mooncake Store, set up and ready. Usable from many threads.
///
/// Dropping it closes it in the background; [`Client::close`] tells when that is done.
pub struct Client {
    shared: Arc<Shared>,
}

struct Shared {
    api: Api,
    store: Handle,
    gate: Gate,
}

/// A live handle. Destroyed exactly once: by the thread that connected if the setup failed, else by the
/// thread that the gate's close started.
#[derive(Clone, Copy)]
struct Handle(NonNull<Store>);

// SAFETY: the library's rule is that a handle may be used from any thread, by many at a time, except for
// setup and destroy; the first happens before a client exists, the second when the gate is empty.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Client {
    /// Creates a handle and sets it up. Blocks: for milliseconds when all is well, for 4 s when no
    /// master answers.
    ///
    /// # Errors
    /// [`ConnectError`]; nothing is left behind but, for up to 20 s, a thread that destroys the handle.
    pub fn connect(library: &Library, setup: &Setup) -> Result<Self, ConnectError> {
        let arguments = setup.arguments()?;
        let api = *library.api();
        let (sender, receiver) = mpsc::channel();
        thread::Builder::new().name("mooncake-setup".into()).spawn(move || {
            let Some(store) = create(&api) else {
                let _ = sender.send(None);
                return;
            };
            let code = set_up(&api, store, &arguments);
            // After a failed setup the handle may be half set up: it is never used. Nor is one whose
            // caller has gone.
            if sender.send(Some((store, code))).is_err() || code < 0 {
                destroy(&api, store);
            }
        })?;
        match receiver.recv() {
            Ok(Some((store, code))) => match Code::from_number(code.into()) {
                None => Ok(Self { shared: Arc::new(Shared { api, store, gate: Gate::open() }) }),
                Some(code) => Err(ConnectError::Refused { code, setup: Box::new(setup.clone()) }),
            },
            Ok(None) | Err(mpsc::RecvError) => Err(ConnectError::Create),
        }
    }

    /// Ends the client: refuses further calls, waits for those that run, and destroys the handle, all on a
    /// thread of its own. Takes 1-3 s once the calls have ended, 20 s with a dead master. May be called
    /// again.
    ///
    /// # Errors
    /// The operating system refused a thread; the client is open as before.
    pub fn close(&self) -> io::Result<Closing> {
        let shared = Arc::clone(&self.shared);
        self.shared.gate.close(|| {
            let thread = thread::Builder::new().name("mooncake-destroy".into());
            thread.spawn(move || {
                shared.gate.empty();
                destroy(&shared.api, shared.store);
                shared.gate.closed();
            })?;
            Ok::<(), io::Error>(())
        })?;
        Ok(Closing { shared: Arc::clone(&self.shared) })
    }

    // -- inside ----------------------------------------------------------------------------------------

    /// Lets a call in.
    pub(crate) fn call(&self) -> Result<Call<'_>, CallError> {
        let inside = self.shared.gate.enter()?;
        Ok(Call { shared: &self.shared, _inside: inside })
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Without a thread to destroy it on, the handle stays: a leak is better than 20 s here.
        let _ = self.close();
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

/// The end of a client, on its way.
pub struct Closing {
    shared: Arc<Shared>,
}

impl Closing {
    /// Waits until the handle is destroyed, at most for `limit`. `true`: none of the client's I/O touches
    /// any memory any more.
    #[must_use = "after a `false` the memory may still be written to"]
    pub fn wait(&self, limit: Duration) -> bool {
        self.shared.gate.wait_closed(limit)
    }
}

impl fmt::Debug for Closing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Closing").finish_non_exhaustive()
    }
}

/// The right to call the library: while it lives the handle is not destroyed.
pub(crate) struct Call<'a> {
    shared: &'a Shared,
    _inside: Inside<'a>,
}

impl Call<'_> {
    pub(crate) fn api(&self) -> &Api {
        &self.shared.api
    }

    pub(crate) fn store(&self) -> *mut Store {
        self.shared.store.0.as_ptr()
    }
}

fn create(api: &Api) -> Option<Handle> {
    // SAFETY: takes nothing.
    NonNull::new(unsafe { (api.create)() }).map(Handle)
}

fn set_up(api: &Api, store: Handle, arguments: &Arguments) -> c_int {
    // SAFETY: the handle is live and nobody else has it; the strings end with a NUL, outlive the call, and
    // were checked for what the library aborts on.
    unsafe {
        (api.setup)(
            store.0.as_ptr(),
            arguments.local_hostname.as_ptr(),
            arguments.metadata_server.as_ptr(),
            arguments.segment_bytes,
            arguments.local_buffer_bytes,
            arguments.protocol.as_ptr(),
            arguments.device.as_ptr(),
            arguments.master.as_ptr(),
        )
    }
}

fn destroy(api: &Api, store: Handle) {
    // SAFETY: the handle is live, no call is inside, and none follows (see `Handle`).
    unsafe { (api.destroy)(store.0.as_ptr()) }
}
