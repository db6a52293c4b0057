//! The same patterns through tokio-uring: a row to compare the engine's path with, not a path of its own. Its memory
//! lies in pages of 4 KiB and is not registered, as that library has it unless asked otherwise.

use crate::signals::Stop;
use mt_engine::bench::{Cell, Done, Ground, Moved, Order, UNIT_BYTES, cpu_seconds};
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio_uring::buf::BoundedBuf;
use tokio_uring::fs::File;

/// What the tasks share.
struct Shared {
    cell: Cell,
    order: Order,
    start: Instant,
    limit: Duration,
    stop: Stop,
    done: Vec<Done>,
    failed: Option<io::Error>,
}

/// Moves transfers for a time on the first file of the ground, in as many tasks as the cell is deep.
///
/// # Errors
/// The system refuses a ring; a transfer fails or moves less than it was asked for.
pub fn run(ground: &Ground, cell: &Cell, limit: Duration, stop: Stop, each: &mut dyn FnMut(Done)) -> io::Result<Moved> {
    let runtime = tokio_uring::Runtime::new(&tokio_uring::builder())?;
    let order = Order::new(cell, ground.bytes(), 0);
    let file = ground.handle(0)?;
    let (start, cpu) = (Instant::now(), cpu_seconds());
    let shared = Shared { cell: *cell, order, start, limit, stop, done: Vec::new(), failed: None };
    let shared = Rc::new(RefCell::new(shared));
    runtime.block_on(async {
        let file = Rc::new(File::from_std(file));
        let task = |_| tokio_uring::spawn(work(Rc::clone(&file), Rc::clone(&shared)));
        let tasks: Vec<_> = (0..cell.depth).map(task).collect();
        for task in tasks {
            task.await.map_err(io::Error::other)?;
        }
        Ok::<(), io::Error>(())
    })?;
    let seconds = start.elapsed().as_secs_f64();
    let mut shared = shared.borrow_mut();
    if let Some(error) = shared.failed.take() {
        return Err(error);
    }
    let mut moved = Moved { seconds, cpu_seconds: cpu_seconds() - cpu, ..Moved::default() };
    for done in &shared.done {
        let sum = if done.is_write { &mut moved.write_bytes } else { &mut moved.read_bytes };
        *sum += u64::from(done.bytes);
        each(*done);
    }
    Ok(moved)
}

/// One transfer after the other.
async fn work(file: Rc<File>, shared: Rc<RefCell<Shared>>) {
    let (cell, start) = {
        let shared = shared.borrow();
        (shared.cell, shared.start)
    };
    let bytes = cell.block_bytes as usize;
    // No zeros, which a drive could shrink.
    let mut buffer: Vec<u8> =
        (0..bytes + UNIT_BYTES as usize).map(|n| (n.wrapping_mul(0x9e37_79b1) >> 7) as u8).collect();
    let first = buffer.as_ptr().align_offset(UNIT_BYTES as usize);
    loop {
        let turn = {
            let mut shared = shared.borrow_mut();
            if start.elapsed() >= shared.limit || shared.failed.is_some() || shared.stop.is_asked() {
                return;
            }
            shared.order.turn()
        };
        let since = Instant::now();
        let slice = buffer.slice(first..first + bytes);
        let (result, slice) = match turn.is_write {
            true => file.write_at(slice, turn.offset).submit().await,
            false => file.read_at(slice, turn.offset).await,
        };
        buffer = slice.into_inner();
        let mut shared = shared.borrow_mut();
        match result {
            Ok(moved) if moved == bytes => {
                let (latency, at) = (since.elapsed(), start.elapsed());
                shared.done.push(Done { is_write: turn.is_write, bytes: cell.block_bytes, latency, at });
            }
            Ok(moved) => shared.failed = Some(io::Error::other(format!("{moved} bytes moved of {bytes}"))),
            Err(error) => shared.failed = Some(error),
        }
    }
}
