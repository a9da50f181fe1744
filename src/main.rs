//! The binary `margay`; everything is in the library, where tests reach it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    margay::cli::main()
}
