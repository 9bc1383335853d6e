//! Finding and mapping the shared library.
//!
//! Relies on the system's loader; promises that a [`Library`] has all functions, and that its function
//! pointers stay valid until the process ends, because a library once mapped is never unloaded: Mooncake
//! keeps threads of its own running, and its code would vanish under them.

use std::{
    env,
    error::Error,
    ffi::OsStr,
    mem,
    path::{Path, PathBuf},
};

use crate::api::Api;

/// The environment variable that names the shared library, the one Mooncake's own loader reads.
pub const LIBRARY_VARIABLE: &str = "MOONCAKE_STORE_LIBRARY";

/// The file that the system's loader is asked for when no path is given.
pub const DEFAULT_LIBRARY: &str = "libmooncake_store.so";

/// Why there is no [`Library`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The variable that should name the library is not set, or empty.
    #[error("{LIBRARY_VARIABLE} is not set: expected the path of Mooncake's {DEFAULT_LIBRARY}")]
    Unset,
    /// The loader could not map the library, or one that it needs.
    #[error("cannot load {}: {reason}", path.display())]
    Library {
        /// What was asked for.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// The library was mapped, but it is not (this version of) Mooncake Store.
    #[error(
        "{} lacks {} of the {} functions of store_c.h: {}",
        path.display(), missing.len(), Api::SYMBOLS.len(), missing.join(", ")
    )]
    Symbols {
        /// What was asked for.
        path: PathBuf,
        /// The C names of all functions that are missing.
        missing: Vec<&'static str>,
    },
}

/// A mapped Mooncake Store library with all of its functions.
#[derive(Clone, Debug)]
pub struct Library {
    path: PathBuf,
    api: Api,
}

impl Library {
    /// Maps the library at `path`. A bare file name is looked up along the loader's search path.
    ///
    /// # Errors
    ///
    /// [`LoadError::Library`] or [`LoadError::Symbols`].
    ///
    /// # Safety
    ///
    /// The file's initialisers run, and its functions are believed to have the signatures of
    /// `store_c.h`: `path` must name a Mooncake Store library, or one with the same C ABI.
    pub unsafe fn open(path: impl AsRef<Path>) -> Result<Self, LoadError> {
        let path = path.as_ref().to_path_buf();
        // SAFETY: the caller vouches for the initialisers.
        let library = unsafe { libloading::Library::new(path.as_os_str()) }
            .map_err(|error| LoadError::Library { path: path.clone(), reason: reason(&error) })?;
        // SAFETY: the caller vouches for the signatures; the library is never unloaded (below).
        let api = unsafe { Api::resolve(&library) };
        mem::forget(library);
        match api {
            Ok(api) => Ok(Self { path, api }),
            Err(missing) => Err(LoadError::Symbols { path, missing }),
        }
    }

    /// Maps the library that [`LIBRARY_VARIABLE`] names.
    ///
    /// # Errors
    ///
    /// [`LoadError::Unset`] if the variable is absent or empty, else as [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open), for the file that the variable names.
    pub unsafe fn from_env() -> Result<Self, LoadError> {
        match env::var_os(LIBRARY_VARIABLE) {
            // SAFETY: the caller vouches for the file.
            Some(path) if !path.is_empty() => unsafe { Self::open(path) },
            _ => Err(LoadError::Unset),
        }
    }

    /// Maps [`DEFAULT_LIBRARY`] from the loader's search path.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    ///
    /// # Safety
    ///
    /// As [`open`](Self::open), for the file that the loader finds.
    pub unsafe fn load() -> Result<Self, LoadError> {
        // SAFETY: the caller vouches for the file.
        unsafe { Self::open(OsStr::new(DEFAULT_LIBRARY)) }
    }

    /// The functions.
    pub fn api(&self) -> &Api {
        &self.api
    }

    /// What was asked of the loader: a path, or [`DEFAULT_LIBRARY`].
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// The message of the system's loader, which `libloading` keeps in the source of its error.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}
