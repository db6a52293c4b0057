//! The files that an export writes, as plain asynchronous code: one small trait with two implementations, one on
//! `tokio_uring` and one on the standard library's files for systems where that is blocked.
//!
//! What it is not: the store's data path, which is the engine's own. This one is for many files, off the hot path.
//!
//! Terms: a buffer is owned by the operation until its result is there, and comes back with it.
//!
//! Invariants: the result of every write is compared with what was asked; a short write is resumed, a write of nothing
//! is an error; nothing counts as written before `sync`.

use std::future::Future;
use std::io;
use std::path::Path;

/// Makes files.
pub(crate) trait Files {
    /// The files it makes.
    type File: OutFile;
    /// Creates a file, which must not exist.
    async fn create(&self, path: &Path) -> io::Result<Self::File>;
}

/// A file that is being written.
pub(crate) trait OutFile {
    /// Writes bytes from `from` on to `position`; how many were written. The buffer comes back with the result.
    async fn write_some(&mut self, buffer: Vec<u8>, from: usize, position: u64) -> (io::Result<usize>, Vec<u8>);
    /// Makes what was written durable.
    async fn sync(&mut self) -> io::Result<()>;
    /// Closes the file.
    async fn close(self) -> io::Result<()>;

    /// Writes the whole buffer to `position`.
    async fn write_all(&mut self, mut buffer: Vec<u8>, position: u64) -> (io::Result<()>, Vec<u8>) {
        let mut done = 0;
        while done < buffer.len() {
            let (result, back) = self.write_some(buffer, done, position + done as u64).await;
            buffer = back;
            match result {
                Ok(0) => return (Err(io::ErrorKind::WriteZero.into()), buffer),
                Ok(written) if written <= buffer.len() - done => done += written,
                Ok(_) => return (Err(io::Error::other("more bytes written than asked for")), buffer),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return (Err(e), buffer),
            }
        }
        (Ok(()), buffer)
    }
}

/// Work that writes files, whichever they are.
pub(crate) trait Work {
    /// What it gives.
    type Output;
    /// Does it.
    fn run<F: Files>(self, files: &F) -> impl Future<Output = Self::Output>;
}

/// Does the work on the best files there are; with the reason if these are the standard library's.
pub(crate) fn block_on<W: Work>(work: W) -> io::Result<(W::Output, Option<io::Error>)> {
    match tokio_uring::Runtime::new(&tokio_uring::builder()) {
        Ok(runtime) => Ok((runtime.block_on(work.run(&RingFiles)), None)),
        Err(why) => Ok((block_on_std(work)?, Some(why))),
    }
}

/// Does the work on the standard library's files.
pub(super) fn block_on_std<W: Work>(work: W) -> io::Result<W::Output> {
    Ok(tokio::runtime::Builder::new_current_thread().build()?.block_on(work.run(&StdFiles)))
}

/// Files of `tokio_uring`.
struct RingFiles;

impl Files for RingFiles {
    type File = tokio_uring::fs::File;

    async fn create(&self, path: &Path) -> io::Result<Self::File> {
        tokio_uring::fs::OpenOptions::new().write(true).create_new(true).open(path).await
    }
}

impl OutFile for tokio_uring::fs::File {
    async fn write_some(&mut self, buffer: Vec<u8>, from: usize, position: u64) -> (io::Result<usize>, Vec<u8>) {
        use tokio_uring::buf::BoundedBuf;
        let (result, slice) = self.write_at(buffer.slice(from..), position).submit().await;
        (result, slice.into_inner())
    }

    async fn sync(&mut self) -> io::Result<()> {
        self.sync_all().await
    }

    async fn close(self) -> io::Result<()> {
        tokio_uring::fs::File::close(self).await
    }
}

/// Files of the standard library.
pub(super) struct StdFiles;

impl Files for StdFiles {
    type File = std::fs::File;

    async fn create(&self, path: &Path) -> io::Result<Self::File> {
        std::fs::OpenOptions::new().write(true).create_new(true).open(path)
    }
}

impl OutFile for std::fs::File {
    async fn write_some(&mut self, buffer: Vec<u8>, from: usize, position: u64) -> (io::Result<usize>, Vec<u8>) {
        let result = std::os::unix::fs::FileExt::write_at(self, &buffer[from..], position);
        (result, buffer)
    }

    async fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }

    async fn close(self) -> io::Result<()> {
        Ok(())
    }
}
