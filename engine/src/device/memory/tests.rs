//! What a fence tells of the uploads before it.

use super::*;

const PAGE: u32 = 4096;

/// A stream's work waits for an upload; another's uses what it gave back, on streams (`waker` None) or by hand.
fn fences_behind_an_upload(waker: Option<Waker>) -> [u64; 2] {
    let arena = Arc::new(Arena::new(u64::from(PAGE)).expect("arena"));
    let settings = Settings { failed_copy: 1000, ..Settings::new(1) };
    let mut device = MemoryDevice::new(DeviceId(0), u64::from(PAGE), arena, settings, waker).expect("memory");
    let upload = DeviceOp::Upload { from: FrameRef::new(0, PAGE), to: 0 };
    device.submit(OpId(0), upload).expect("the queue is empty");
    let streams = device.streams();
    let [first, second] = [Stream(1), Stream(2)];
    streams.wait(first, After { upload: 1, fences: false }).expect("nothing refuses");
    let given_back = streams.record(first).expect("nothing refuses");
    streams.wait(second, After { upload: 0, fences: true }).expect("nothing refuses");
    [given_back, streams.record(second).expect("nothing refuses")].map(|fence| fence.after)
}

#[test]
fn who_comes_behind_others_comes_behind_their_uploads() {
    assert_eq!(fences_behind_an_upload(None), [1, 1], "on streams");
    assert_eq!(fences_behind_an_upload(Some(Waker::new().expect("eventfd"))), [1, 1], "by hand");
}
