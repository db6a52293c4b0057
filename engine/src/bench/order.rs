//! Cells and the order of their transfers.

/// Every transfer is a multiple of it: the largest alignment that direct I/O asks for.
pub const UNIT_BYTES: u32 = 4096;

/// A pattern of transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cell {
    /// Transfers of a hundred that read.
    pub reads: u32,
    /// At random places, else from the beginning on and around, reads and writes each for themselves.
    pub is_random: bool,
    /// Bytes of a transfer, a multiple of [`UNIT_BYTES`].
    pub block_bytes: u32,
    /// Transfers in flight a directory.
    pub depth: u32,
    /// Each transfer's checksums are computed, before a write and after a read, as stores do it.
    pub has_checksums: bool,
}

/// A transfer to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Turn {
    /// It writes.
    pub is_write: bool,
    /// Byte offset in the file.
    pub offset: u64,
}

/// The order of a cell's transfers on one file: of every hundred in a row as many reads as the cell says, evenly
/// spread; from the beginning on and around, writes half a file away from reads, or at random places.
#[derive(Clone, Debug)]
pub struct Order {
    cell: Cell,
    blocks: u64,
    turns: u64,
    read: u64,
    write: u64,
    random: u64,
}

impl Order {
    /// On a file of `bytes`, which has room for two blocks. Another seed gives other random places.
    pub fn new(cell: &Cell, bytes: u64, seed: u64) -> Order {
        let blocks = bytes / u64::from(cell.block_bytes);
        // Files that are only written are written from their beginning on.
        let write = if cell.reads == 0 { 0 } else { blocks / 2 };
        Order { cell: *cell, blocks, turns: 0, read: 0, write, random: mix(seed + 1) }
    }

    /// The next transfer.
    pub fn turn(&mut self) -> Turn {
        let reads = u64::from(self.cell.reads);
        let is_write = (self.turns + 1) * reads / 100 == self.turns * reads / 100;
        self.turns += 1;
        let block = if self.cell.is_random {
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            mix(self.random) % self.blocks
        } else {
            let place = if is_write { &mut self.write } else { &mut self.read };
            *place += 1;
            (*place - 1) % self.blocks
        };
        Turn { is_write, offset: block * u64::from(self.cell.block_bytes) }
    }
}

/// A well mixed function of a counter.
pub(super) fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
