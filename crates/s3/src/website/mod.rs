//! A bucket as a website: its configuration.
//!
//! Not here: how the configuration is kept (volume).

mod configuration;

pub(crate) use self::configuration::Website;
