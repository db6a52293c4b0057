//! The file of a volume: opened for direct I/O where the file system has it, its space reserved up front, and plain
//! reads and writes for the time of opening, when no backend runs yet.
//!
//! It knows nothing of what is stored. During a sweep its bytes move through a backend only.

use crate::config::DirectIo;
use crate::error::Error;
use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, StatxFlags, fallocate, fcntl_getfl, fcntl_setfl, fstatfs, statvfs, statx,
};
use rustix::io::Errno;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Largest alignment that the store's layout can serve, and the unit of the plain reads and writes here.
pub const ALIGNMENT_MAX: u32 = 4096;

/// Smallest alignment reported: a sector, also where the file system asks for less.
const ALIGNMENT_MIN: u32 = 512;

/// Bytes moved at a time by the plain reads and writes.
const CHUNK_BYTES: usize = 1 << 20;

const TMPFS_MAGIC: i64 = 0x0102_1994;
const RAMFS_MAGIC: i64 = 0x8584_58f6;

/// A volume's open file.
#[derive(Debug)]
pub struct VolumeFile {
    file: Arc<File>,
    dir: PathBuf,
    path: PathBuf,
    alignment: u32,
    direct: bool,
    /// What the user should know about this volume, in one line.
    pub notice: Option<String>,
}

impl VolumeFile {
    /// Makes the file `name` in `dir`, which must not hold one, and makes its name durable.
    ///
    /// # Errors
    /// `Error::Exists`; `Error::DirectIo` where direct I/O is required and refused; `Error::Io`.
    pub fn create(dir: &Path, name: &str, direct: DirectIo) -> Result<VolumeFile, Error> {
        let path = dir.join(name);
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => Error::Exists { path: dir.to_path_buf() },
                _ => failed("creating", &path, 0, 0, e),
            })?;
        File::open(dir).and_then(|d| d.sync_all()).map_err(|e| failed("syncing", dir, 0, 0, e))?;
        VolumeFile::prepare(file, dir, path, direct)
    }

    /// Makes a file in `dir` that has no name and is gone when it is closed, however the process ends.
    ///
    /// # Errors
    /// `Error::DirectIo` where direct I/O is required and refused; `Error::Io`.
    pub fn nameless(dir: &Path, direct: DirectIo) -> Result<VolumeFile, Error> {
        let flags = OFlags::TMPFILE.bits() as i32;
        let made = OpenOptions::new().read(true).write(true).custom_flags(flags).open(dir);
        if let Ok(file) = made {
            return VolumeFile::prepare(file, dir, dir.join("(nameless)"), direct);
        }
        // Not every file system has such files: one with a name that nobody else has, which it loses before it holds a
        // byte.
        let path = dir.join(format!("measured-{}-{}.mt", std::process::id(), uuid::Uuid::new_v4().simple()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path);
        let file = file.map_err(|e| failed("creating", &path, 0, 0, e))?;
        std::fs::remove_file(&path).map_err(|e| failed("removing", &path, 0, 0, e))?;
        VolumeFile::prepare(file, dir, path, direct)
    }

    /// Opens the file `name` in `dir`.
    ///
    /// # Errors
    /// `Error::NoStore` when there is none; `Error::DirectIo` where direct I/O is required and refused; `Error::Io`.
    pub fn open(dir: &Path, name: &str, direct: DirectIo) -> Result<VolumeFile, Error> {
        VolumeFile::open_as(dir, name, direct, true)
    }

    /// As [`VolumeFile::open`], for reading alone.
    ///
    /// # Errors
    /// As [`VolumeFile::open`].
    pub fn open_to_read(dir: &Path, name: &str, direct: DirectIo) -> Result<VolumeFile, Error> {
        VolumeFile::open_as(dir, name, direct, false)
    }

    fn open_as(dir: &Path, name: &str, direct: DirectIo, write: bool) -> Result<VolumeFile, Error> {
        let path = dir.join(name);
        let file = OpenOptions::new().read(true).write(write).open(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => Error::NoStore { path: dir.to_path_buf() },
            _ => failed("opening", &path, 0, 0, e),
        })?;
        VolumeFile::prepare(file, dir, path, direct)
    }

    /// Switches direct I/O on, if the file system has it. After opening, because a failed open with the flag may
    /// leave a file.
    fn prepare(file: File, dir: &Path, path: PathBuf, wanted: DirectIo) -> Result<VolumeFile, Error> {
        let (alignment, refusal) = match switch_to_direct(&file) {
            Ok(alignment) => (alignment, None),
            Err(what) => (ALIGNMENT_MIN, Some(what)),
        };
        let refused = |what: String| Error::DirectIo { path: dir.to_path_buf(), what };
        if alignment > ALIGNMENT_MAX {
            return Err(refused(format!("transfers must be aligned to {alignment} bytes, more than {ALIGNMENT_MAX}")));
        }
        if let (Some(what), DirectIo::Required) = (&refusal, wanted) {
            return Err(refused(what.clone()));
        }
        let mut remarks = Vec::new();
        if is_ram(&file) {
            remarks.push("the file system is RAM: pages there take the memory that the budget is to save".to_string());
        }
        let direct = refusal.is_none();
        if let Some(what) = refusal {
            remarks.push(format!("direct I/O is refused ({what}), so transfers go through the page cache"));
        }
        let notice = (!remarks.is_empty()).then(|| format!("{}: {}", dir.display(), remarks.join("; ")));
        Ok(VolumeFile { file: Arc::new(file), dir: dir.to_path_buf(), path, alignment, direct, notice })
    }

    /// The directory of the volume.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Alignment of memory, offsets and lengths of transfers, in bytes: a power of two from 512 to 4,096.
    pub fn alignment(&self) -> u32 {
        self.alignment
    }

    /// Whether transfers go past the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    /// Bytes that the file takes on its file system.
    ///
    /// # Errors
    /// `Error::Io`.
    pub fn reserved_bytes(&self) -> Result<u64, Error> {
        let data = self.file.metadata().map_err(|e| failed("asking the size", &self.path, 0, 0, e))?;
        Ok(data.blocks() * 512)
    }

    /// The open file, for the backends.
    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    /// Another handle of the open file.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(crate) fn handle(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// `Error::Io`.
    #[allow(clippy::len_without_is_empty)] // The size of a file, not of a collection.
    pub fn len(&self) -> Result<u64, Error> {
        self.file.metadata().map(|m| m.len()).map_err(|e| failed("asking the size", &self.path, 0, 0, e))
    }

    /// Reserves space for a range, growing the file over it, so that later writes there cannot lack space. On refusal
    /// the file is as long as before.
    ///
    /// # Errors
    /// `Error::NoSpace` with the bytes needed and free; `Error::Io`.
    pub fn reserve(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let length = self.len()?;
        self.require_free(bytes)?;
        let reserved = match retry(|| fallocate(&self.file, FallocateFlags::empty(), offset, bytes)) {
            Err(Errno::OPNOTSUPP) => self.fill_with_zeros(length, offset.saturating_add(bytes)),
            other => other.map_err(io::Error::from),
        };
        reserved.map_err(|e| {
            if let Err(e) = self.file.set_len(length) {
                return failed("shortening", &self.path, length, 0, e);
            }
            match e.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::NOSPC | Errno::DQUOT) => {
                    Error::NoSpace { path: self.dir.clone(), need: bytes, free: free_bytes(&self.dir).unwrap_or(0) }
                }
                _ => failed("reserving", &self.path, offset, bytes, e),
            }
        })
    }

    /// Refuses a need of more bytes than the file system has free.
    ///
    /// # Errors
    /// `Error::NoSpace`; `Error::Io`.
    pub fn require_free(&self, need: u64) -> Result<(), Error> {
        let free = free_bytes(&self.dir)?;
        if free < need {
            return Err(Error::NoSpace { path: self.dir.clone(), need, free });
        }
        Ok(())
    }

    /// Reserves where the file system has no call for it: everything from the present end on is written.
    fn fill_with_zeros(&self, length: u64, end: u64) -> io::Result<()> {
        let zeros = AlignedBuf::new(CHUNK_BYTES);
        let mut at = length;
        while at < end {
            let bytes = (end - at).min(CHUNK_BYTES as u64) as usize;
            self.file.write_all_at(&zeros.as_slice()[..bytes], at)?;
            at += bytes as u64;
        }
        Ok(())
    }

    /// Gives the space of a range back to the file system, where it can take it. The range's content is lost.
    ///
    /// # Errors
    /// `Error::Io`.
    pub fn punch(&self, offset: u64, bytes: u64) -> Result<(), Error> {
        if bytes == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match retry(|| fallocate(&self.file, flags, offset, bytes)) {
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(e) => Err(failed("releasing", &self.path, offset, bytes, e.into())),
        }
    }

    /// Fills `into` from the file.
    ///
    /// # Errors
    /// `Error::Io`, with `UnexpectedEof` when the file ends before that.
    ///
    /// # Panics
    /// When offset or length is no multiple of 4,096.
    pub fn read_at(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        assert_aligned(offset, into.len());
        let total = into.len() as u64;
        let mut buffer = AlignedBuf::new(into.len().min(CHUNK_BYTES));
        let mut at = offset;
        for piece in into.chunks_mut(CHUNK_BYTES) {
            let buffer = &mut buffer.as_mut_slice()[..piece.len()];
            self.file.read_exact_at(buffer, at).map_err(|e| failed("reading", &self.path, offset, total, e))?;
            piece.copy_from_slice(buffer);
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes `from` to the file. Durable after `sync`.
    ///
    /// # Errors
    /// `Error::Io`.
    ///
    /// # Panics
    /// When offset or length is no multiple of 4,096.
    pub fn write_at(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        assert_aligned(offset, from.len());
        let total = from.len() as u64;
        let mut buffer = AlignedBuf::new(from.len().min(CHUNK_BYTES));
        let mut at = offset;
        for piece in from.chunks(CHUNK_BYTES) {
            let buffer = &mut buffer.as_mut_slice()[..piece.len()];
            buffer.copy_from_slice(piece);
            self.file.write_all_at(buffer, at).map_err(|e| failed("writing", &self.path, offset, total, e))?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Makes everything written, and the file's size, durable.
    ///
    /// # Errors
    /// `Error::Io`; what is on disk is then unknown.
    pub fn sync(&self) -> Result<(), Error> {
        self.file.sync_all().map_err(|e| failed("syncing", &self.path, 0, 0, e))
    }
}

/// Bytes that an unprivileged process may still write to the file system of `dir`; `u64::MAX` where it does not say.
///
/// # Errors
/// `Error::Io`.
pub fn free_bytes(dir: &Path) -> Result<u64, Error> {
    let space = statvfs(dir).map_err(|e| failed("asking the free space", dir, 0, 0, e.into()))?;
    // A file system without a size, like ramfs, says zero of zero.
    Ok(if space.f_blocks == 0 { u64::MAX } else { space.f_bavail.saturating_mul(space.f_frsize) })
}

/// Turns direct I/O on and returns the alignment, or says why it cannot be.
fn switch_to_direct(file: &File) -> Result<u32, String> {
    let flags = fcntl_getfl(file).map_err(|e| format!("reading the file's flags: {e}"))?;
    fcntl_setfl(file, flags | OFlags::DIRECT).map_err(|e| format!("setting O_DIRECT: {e}"))?;
    let back = |what: String| match fcntl_setfl(file, flags) {
        Ok(()) => what,
        Err(e) => format!("{what}; and O_DIRECT cannot be taken back: {e}"),
    };
    let alignment = match direct_alignment(file) {
        Some(0) => return Err(back("the file system has none for this file".to_string())),
        Some(alignment) => alignment.max(ALIGNMENT_MIN),
        None => ALIGNMENT_MAX,
    };
    if alignment > ALIGNMENT_MAX {
        return Ok(alignment);
    }
    // Some file systems take the flag and refuse the transfers.
    let mut probe = AlignedBuf::new(ALIGNMENT_MAX as usize);
    match file.read_at(probe.as_mut_slice(), 0) {
        Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => Err(back(format!("a direct read: {e}"))),
        _ => Ok(alignment),
    }
}

/// The file system's word on alignment: 0 where it has no direct I/O, `None` where it does not say.
fn direct_alignment(file: &File) -> Option<u32> {
    let answer = statx(file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok()?;
    let said = StatxFlags::from_bits_retain(answer.stx_mask).contains(StatxFlags::DIOALIGN);
    said.then(|| answer.stx_dio_mem_align.max(answer.stx_dio_offset_align))
}

fn is_ram(file: &File) -> bool {
    fstatfs(file).is_ok_and(|s| [TMPFS_MAGIC, RAMFS_MAGIC].contains(&s.f_type))
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> rustix::io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            other => return other,
        }
    }
}

fn assert_aligned(offset: u64, bytes: usize) {
    let unit = ALIGNMENT_MAX as u64;
    assert!(
        offset.is_multiple_of(unit) && (bytes as u64).is_multiple_of(unit),
        "{bytes} bytes at {offset} are not aligned"
    );
}

fn failed(doing: &'static str, path: &Path, offset: u64, bytes: u64, source: io::Error) -> Error {
    Error::Io { doing, path: path.to_path_buf(), offset, bytes, source: Arc::new(source) }
}

/// Bytes of the heap, aligned for direct I/O and zero at first.
#[derive(Debug)]
pub struct AlignedBuf {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl AlignedBuf {
    /// `len` zero bytes.
    pub fn new(len: usize) -> AlignedBuf {
        let bytes = vec![0; len + ALIGNMENT_MAX as usize];
        let start = bytes.as_ptr().align_offset(ALIGNMENT_MAX as usize);
        assert!(start < ALIGNMENT_MAX as usize, "the alignment of bytes can always be found");
        AlignedBuf { bytes, start, len }
    }

    /// The bytes.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    /// The bytes, to be changed.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests;
