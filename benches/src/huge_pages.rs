//! Huge pages for fio's buffers, from the system's pool. A transfer of 1 MiB over 4 KiB pages has 256 segments, over a
//! huge page one, and on a drive that takes fewer segments at a time this alone is worth a factor of two.

use std::path::Path;

const COUNT: &str = "/proc/sys/vm/nr_hugepages";
const FREE: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages";

/// Huge pages that fio's buffers take at 32 transfers of 1 MiB, and some for its own use of the pool.
const NEEDED: u64 = 40;

/// A share of the pool; what was added for it goes back when it is dropped.
pub struct HugePages {
    before: Option<u64>,
}

impl HugePages {
    /// Makes sure that enough huge pages are free.
    ///
    /// # Errors
    /// Why they cannot be had, in words.
    pub fn reserve() -> Result<HugePages, String> {
        let (count, free) = (number(COUNT)?, number(FREE)?);
        if free >= NEEDED {
            return Ok(HugePages { before: None });
        }
        let wanted = count + NEEDED - free;
        std::fs::write(COUNT, wanted.to_string()).map_err(|e| format!("setting vm.nr_hugepages: {e}"))?;
        let pages = HugePages { before: Some(count) };
        match number(FREE)? {
            free if free >= NEEDED => Ok(pages),
            free => Err(format!("{NEEDED} huge pages are needed, and the system finds {free}")),
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

fn number(path: &str) -> Result<u64, String> {
    let text = std::fs::read_to_string(Path::new(path)).map_err(|e| format!("{path}: {e}"))?;
    text.trim().parse().map_err(|e| format!("{path}: {e}"))
}
