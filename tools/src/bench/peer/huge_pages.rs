//! Huge pages for another program's buffers, from the system's pool. A transfer of 1 MiB over pages of 4 KiB has 256
//! segments, over a huge page one, and on a drive that takes fewer segments at a time this alone is worth a factor of
//! two.

use std::path::Path;

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";
/// The program's own use of the pool beside its buffers.
const SPARE: u64 = 8;

/// A share of the pool; what was added for it goes back when this is dropped.
pub struct HugePages {
    before: Option<u64>,
}

impl HugePages {
    /// Makes sure that enough for `bytes` are free.
    ///
    /// # Errors
    /// Why they cannot be had, in words.
    pub fn reserve(bytes: u64) -> Result<HugePages, String> {
        let number =
            |path: &str| crate::machine::sys::number_in(Path::new(path)).ok_or_else(|| format!("{path}: no number"));
        let needed = bytes.div_ceil(2 << 20) + SPARE;
        let (count, free) = (number(COUNT)?, number(FREE)?);
        if free >= needed {
            return Ok(HugePages { before: None });
        }
        let wanted = count + needed - free;
        std::fs::write(COUNT, wanted.to_string()).map_err(|e| format!("setting vm.nr_hugepages: {e}"))?;
        let pages = HugePages { before: Some(count) };
        match number(FREE)? {
            free if free >= needed => Ok(pages),
            free => Err(format!("{needed} huge pages are needed, and the system finds {free}")),
        }
    }
}

impl Drop for HugePages {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // The pages are the system's again at the latest when it starts anew.
            let _ = std::fs::write(COUNT, before.to_string());
        }
    }
}
