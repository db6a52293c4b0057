//! Pages and chunks.

use super::*;
use crate::model::{Unit, UnitKind};

fn manifest(sizes: &[usize]) -> Manifest {
    let unit = |&elements: &usize| Unit { kind: UnitKind::Head, tensors: Vec::new(), elements };
    Manifest { units: sizes.iter().map(unit).collect() }
}

#[test]
fn chunks_cover_each_unit_once_and_in_order() {
    let manifest = manifest(&[1, 2_048, 10_000, 65_537]);
    for chunk_elements in [1, 2_048, 5_000, 8_192, 1 << 20] {
        let layout = Layout::new(&manifest, Some(2_048), chunk_elements);
        assert_eq!(layout.first_page, [0, 1, 2, 7, 40]);
        let mut page = 0;
        for (index, unit) in manifest.units.iter().enumerate() {
            let mut next = 0;
            for chunk in layout.chunks(&manifest, index) {
                assert_eq!((chunk.start, chunk.first_page), (next, page));
                assert!(chunk.len > 0 && chunk.len <= chunk.pages as usize * 2_048);
                assert!(chunk.pages == 1 || chunk.pages as usize * 2_048 <= chunk_elements);
                next += chunk.len;
                page += chunk.pages;
            }
            assert_eq!(next, unit.elements);
        }
        assert_eq!(page, layout.pages());
    }
}

#[test]
fn automatic_pages_keep_padding_within_a_percent() {
    // One unit of exactly a large page: no padding at all.
    assert_eq!(Layout::new(&manifest(&[1 << 20]), None, 1).page_elements, 1 << 20);
    // Tiny units cannot keep it: the smallest page.
    assert_eq!(Layout::new(&manifest(&[100, 100]), None, 1).page_elements, PAGE_ELEMENTS_MIN);
    let sizes = [28_311_552, 3_540_096, 3_540_096, 576];
    let page = Layout::new(&manifest(&sizes), None, 1).page_elements;
    let padding = |page: usize| sizes.iter().map(|&n: &usize| n.next_multiple_of(page) - n).sum::<usize>() * 100;
    let total = sizes.iter().sum::<usize>();
    assert!(padding(page) <= total && padding(page * 2) > total);
}

#[test]
fn regions_line_up() {
    let layout = Layout::new(&manifest(&[5_000]), Some(2_048), 1);
    let regions = layout.regions(true);
    let sizes: Vec<_> = regions.iter().map(|r| (r.name.as_str(), r.page_bytes, r.pages, r.kind)).collect();
    assert_eq!(
        sizes,
        [
            ("hi", 4_096, 3, Kind::Checkpointed),
            ("lo", 4_096, 3, Kind::Checkpointed),
            ("m", 8_192, 3, Kind::Checkpointed),
            ("v", 8_192, 3, Kind::Checkpointed),
            ("grad", 8_192, 3, Kind::Scratch)
        ]
    );
    assert!(layout.regions(false).iter().all(|region| region.kind == Kind::Scratch));
}
