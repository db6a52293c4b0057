use super::*;

#[test]
fn arguments_are_passed_by_value() {
    #[derive(Clone, Copy)]
    struct Three([f32; 3]);
    args!(Three);
    let (a, b, c) = (7u64, Three([1.0, 2.0, 3.0]), 5i32);
    let args: [&dyn Arg; 3] = [&a, &b, &c];
    assert_eq!(sizes(&args), [8, 12, 4]);
    let here = [std::ptr::from_ref(&a).addr(), std::ptr::from_ref(&b.0).addr(), std::ptr::from_ref(&c).addr()];
    assert_eq!(places(&args).iter().map(|place| place.addr()).collect::<Vec<_>>(), here);
}
