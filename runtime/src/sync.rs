//! The one lock of this crate, swapped for loom's when the links are model-checked: see `link/model.rs`.

#[cfg(gegendruck_model)]
use loom::sync as imp;
#[cfg(not(gegendruck_model))]
use std::sync as imp;

pub(crate) use imp::MutexGuard;

/// A mutex without poisoning: what it guards is changed only in steps that cannot panic half-way.
#[derive(Debug)]
pub(crate) struct Mutex<T>(imp::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Mutex(imp::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Mutex::new(T::default())
    }
}
