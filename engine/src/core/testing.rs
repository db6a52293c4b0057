//! What tests that step a core by hand share.

pub(super) mod image;
pub(super) mod stamps;
