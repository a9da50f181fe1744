//! MD5 of many streams in parallel, one per lane of a vector register, compared with one stream after the other.
//!
//! Why: MD5 is the most expensive part of an upload: a chain of dependent steps that one stream cannot overlap, but
//!      many concurrent uploads could. The results are in docs/design/0010-md5-of-many-uploads.md; the server does not
//!      use it.
//!
//! Run: `cargo run --release -p margay-s3 --example md5_lanes`

#![allow(clippy::disallowed_methods, reason = "a benchmark measures time")]

#[cfg(target_arch = "x86_64")]
mod avx2;

fn main() {
    #[cfg(target_arch = "x86_64")]
    avx2::run();
    #[cfg(not(target_arch = "x86_64"))]
    println!("this trial is written for AVX2");
}
