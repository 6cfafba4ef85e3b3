//! The objects of the driver, each as data: what happens to them is in `world`.

pub(crate) mod capture;
pub(crate) mod context;
pub(crate) mod device;
pub(crate) mod event;
pub(crate) mod handle;
pub(crate) mod memory;
pub(crate) mod module;
pub(crate) mod pool;
pub(crate) mod stream;
pub(crate) mod virtual_memory;
pub(crate) mod work;
