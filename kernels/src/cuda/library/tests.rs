use super::*;

/// Creates empty files and returns the folder that holds them.
fn tree(paths: &[&str]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for path in paths {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, b"").unwrap();
    }
    root
}

fn found(root: &Path) -> Vec<String> {
    files(root, "libnvrtc").iter().map(|p| p.strip_prefix(root).unwrap().to_string_lossy().into_owned()).collect()
}

#[test]
fn toolkits_wheels_and_conda_are_known() {
    let root = tree(&[
        "lib64/libnvrtc.so.12",
        "lib64/libnvrtc.so.12.9.86",
        "lib64/libnvrtc-builtins.so.12.9",
        "lib/libnvrtc.so.11.2",
        "lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        "lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
    ]);
    let want = [
        "lib64/libnvrtc.so.12.9.86",
        "lib64/libnvrtc.so.12",
        "lib/libnvrtc.so.11.2",
        "lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
        "lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
    ];
    assert_eq!(found(root.path()), want);
}

#[test]
fn a_file_that_is_no_library_is_named_in_the_error() {
    let root = tree(&["libnothing.so.1"]);
    let search = Search::only(vec![root.path().to_owned()]);
    let error = search.open("nothing", "libnothing", &[1], "any".into(), |_| Ok(())).unwrap_err();
    let Error::NoLibrary { tried, .. } = &error else { panic!("{error}") };
    assert_eq!(tried.len(), 1);
    assert!(error.to_string().contains("libnothing.so.1"), "{error}");
    let none = Search::default().open("nothing", "libnothing", &[1], "any".into(), |_| Ok(())).unwrap_err();
    assert!(none.to_string().starts_with("no usable nothing (needed: any); none found; set MT_CUDA_PATH"), "{none}");
}
