//! Website hosting of a bucket: configuration, redirects, error pages.
//!
//! Why:        the configuration alone decides what a visitor sees; this is that decision, without I/O.
//! Not here:   handling of a request (`door`), who may read (`access`).

mod configuration;
mod error_page;
mod redirect;

pub(crate) use self::configuration::Website;
pub(crate) use self::error_page::{ErrorPage, name_error};
pub(crate) use self::redirect::{Location, Origin};
