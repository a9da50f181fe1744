//! The binary `margay`; all code is in the library, where tests can reach it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    margay::cli::main()
}
