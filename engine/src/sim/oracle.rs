//! What every page holds, as far as the store's users know: the working version, that of the last acknowledged commit,
//! and that of the commit being made. The content of a page follows from its number and its version, so versions are
//! all there is to remember.

use crate::config::{Kind, RegionSpec};
use crate::id::Run;

/// Bytes of a word of content.
const WORD_BYTES: usize = 8;

/// A version: each write of a page has its own. `None`: never written.
pub(super) type Version = Option<u64>;

/// A state of the store that a commit made or makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Saved {
    pub(super) commit: u64,
    pub(super) note: Vec<u8>,
    pub(super) versions: Vec<Version>,
}

/// The users' knowledge.
#[derive(Clone)]
pub(super) struct Oracle {
    kinds: Vec<Kind>,
    /// Number of each region's first page.
    first: Vec<u32>,
    pub(super) working: Vec<Version>,
    pub(super) acknowledged: Option<Saved>,
    pub(super) begun: Option<Saved>,
    next_version: u64,
    /// How often something was written.
    pub(super) writes: u64,
    /// For each page that was written in this process, the value of `writes` after the first time.
    first_write: Vec<u64>,
}

impl Oracle {
    pub(super) fn new(regions: &[RegionSpec]) -> Oracle {
        let mut first = Vec::new();
        let mut kinds = Vec::new();
        for region in regions {
            first.push(kinds.len() as u32);
            kinds.extend(vec![region.kind; region.pages as usize]);
        }
        let (working, first_write) = (vec![None; kinds.len()], vec![0; kinds.len()]);
        Oracle { kinds, first, working, acknowledged: None, begun: None, next_version: 1, writes: 0, first_write }
    }

    /// Numbers of a run's pages through all regions.
    pub(super) fn pages(&self, run: Run) -> std::ops::Range<usize> {
        let first = (self.first[run.region.0 as usize] + run.first) as usize;
        first..first + run.count as usize
    }

    /// Whether frozen regions may not be written any more.
    pub(super) fn is_sealed(&self) -> bool {
        self.acknowledged.is_some()
    }

    /// Whether reading the run is an error because of scratch that was never written.
    pub(super) fn is_undefined(&self, run: Run) -> bool {
        self.was_undefined(run, self.writes)
    }

    /// Whether it was one when so much had been written.
    pub(super) fn was_undefined(&self, run: Run, writes: u64) -> bool {
        let is_undefined = |page: usize| self.working[page].is_none() || self.first_write[page] > writes;
        self.pages(run).any(|page| self.kinds[page] == Kind::Scratch && is_undefined(page))
    }

    /// Versions for a write of the run.
    pub(super) fn new_versions(&mut self, run: Run) -> Vec<u64> {
        let first = self.next_version;
        self.next_version += u64::from(run.count);
        (first..self.next_version).collect()
    }

    /// The run was written.
    pub(super) fn wrote(&mut self, run: Run, versions: &[u64]) {
        self.writes += 1;
        for (page, version) in self.pages(run).zip(versions) {
            if self.working[page].replace(*version).is_none() {
                self.first_write[page] = self.writes;
            }
        }
    }

    /// A commit of the present state begins. Says whether some of the pages that were ever written are as they were at
    /// the one before.
    pub(super) fn commit_begun(&mut self, note: Vec<u8>) -> bool {
        let saved = |page: usize| self.kinds[page] != Kind::Scratch;
        let versions: Vec<Version> =
            (0..self.kinds.len()).map(|page| self.working[page].filter(|_| saved(page))).collect();
        let before = self.acknowledged.as_ref();
        let is_same =
            |page: usize| versions[page].is_some() && before.is_some_and(|b| b.versions[page] == versions[page]);
        let is_partial = (0..versions.len()).any(is_same) && before.is_some_and(|b| b.versions != versions);
        let commit = before.map_or(0, |saved| saved.commit + 1);
        self.begun = Some(Saved { commit, note, versions });
        is_partial
    }

    /// The commit is durable.
    pub(super) fn commit_done(&mut self) {
        self.acknowledged = self.begun.take();
    }

    /// The commit was not started.
    pub(super) fn commit_refused(&mut self) {
        self.begun = None;
    }

    /// The commit with this number, if a store may be found at it.
    pub(super) fn allowed(&self, commit: u64) -> Option<&Saved> {
        self.acknowledged.iter().chain(&self.begun).find(|saved| saved.commit == commit)
    }

    /// The store was opened at this commit, or has none: what is not of it is forgotten.
    pub(super) fn opened(&mut self, commit: Option<u64>) {
        self.acknowledged = commit.and_then(|commit| self.allowed(commit).cloned());
        assert_eq!(self.acknowledged.is_some(), commit.is_some(), "only what is allowed is opened");
        self.begun = None;
        self.working = match &self.acknowledged {
            Some(saved) => saved.versions.clone(),
            None => vec![None; self.kinds.len()],
        };
    }
}

/// A word of a page's content. The first names page and version, so that wrong bytes say what they are.
fn word(page: usize, version: u64, index: usize) -> u64 {
    let name = ((page as u64) << 40) | version;
    match index {
        0 => name,
        _ => (name ^ (index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)).wrapping_mul(0xd6e8_feb8_6659_fd93),
    }
}

/// Fills a page.
pub(super) fn fill(page: usize, version: u64, bytes: &mut [u8]) {
    for (index, into) in bytes.chunks_exact_mut(WORD_BYTES).enumerate() {
        into.copy_from_slice(&word(page, version, index).to_le_bytes());
    }
}

/// Compares a page with what it should hold; says what it holds instead.
pub(super) fn compare(page: usize, version: Version, bytes: &[u8]) -> Result<(), String> {
    let expected = |index| version.map_or(0, |version| word(page, version, index));
    let found = |chunk: &[u8]| u64::from_le_bytes(chunk.try_into().expect("a word"));
    let mut words = bytes.chunks_exact(WORD_BYTES).enumerate();
    match words.find(|(index, chunk)| found(chunk) != expected(*index)) {
        None => Ok(()),
        Some((index, _)) => {
            let name = found(&bytes[..WORD_BYTES]);
            let (other, held) = (name >> 40, name & ((1 << 40) - 1));
            Err(format!(
                "page {page}: expected version {version:?}, found the beginning of page {other} version {held}, \
                 different from byte {}",
                index * WORD_BYTES
            ))
        }
    }
}
