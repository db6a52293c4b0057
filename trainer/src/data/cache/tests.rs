use super::*;

fn description() -> Description {
    let file = SourceFile { path: "data/a.txt".into(), bytes: 12, digest: u64::MAX };
    Description {
        origin: Origin::Files(vec![file]),
        tokenizer: 7,
        eos: Some(2),
        vocab: 100,
        starts: vec![0, 5],
        empty_files: 1,
    }
}

fn write(path: &Path, ids: &[u32]) {
    let mut writer = CacheWriter::create(path).unwrap();
    let (a, b) = ids.split_at(ids.len() / 3);
    writer.push(a).unwrap();
    writer.push(b).unwrap();
    assert_eq!(writer.ids(), ids.len() as u64);
    assert!(!path.exists());
    writer.finish(&description()).unwrap();
}

#[test]
fn what_is_written_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    assert!(TokenCache::open(&path).unwrap().is_none());
    let ids: Vec<u32> = (0..3 * BLOCK_IDS as u32 + 5).map(|i| i.wrapping_mul(2_654_435_761)).collect();
    write(&path, &ids);
    let cache = TokenCache::open(&path).unwrap().unwrap();
    assert_eq!(cache.ids(), ids.len() as u64);
    assert_eq!(*cache.description(), description());
    assert_eq!(cache.read(0, ids.len()).unwrap(), ids);
    assert_eq!(cache.read(100_000, 7).unwrap(), ids[100_000..100_007]);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn an_unfinished_cache_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    let mut writer = CacheWriter::create(&path).unwrap();
    writer.push(&[1, 2, 3]).unwrap();
    drop(writer);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Any byte changed, and any cut, is found.
#[test]
fn damage_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokens.bin");
    write(&path, &(0..50).collect::<Vec<_>>());
    let good = std::fs::read(&path).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        let error = TokenCache::open(&path).unwrap_err();
        assert_eq!(error.exit_code(), 2, "byte {at}");
        assert!(error.to_string().contains("tokens.bin"), "{error}");
    }
    for len in [0, 8, 63, 64, 100, good.len() - 1] {
        std::fs::write(&path, &good[..len]).unwrap();
        assert!(TokenCache::open(&path).is_err(), "{len} bytes");
    }
    std::fs::write(&path, &good).unwrap();
    assert!(TokenCache::open(&path).unwrap().is_some());
}
