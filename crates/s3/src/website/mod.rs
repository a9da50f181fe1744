//! A bucket as a website: its configuration, where a request is sent instead, the pages that tell of errors.
//!
//! Why:        what a visitor sees is decided by the configuration alone; this is that decision, without I/O.
//! Not here:   the way of a visit (`door`), who may read (`access`).

mod configuration;
mod error_page;
mod redirect;

pub(crate) use self::configuration::Website;
pub(crate) use self::error_page::{ErrorPage, name_error};
pub(crate) use self::redirect::{Location, Origin};
