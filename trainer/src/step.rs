//! One optimizer step as sweeps over the store.
