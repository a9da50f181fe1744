//! The binary `margay`; all code is in the library, where tests can reach it.

use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The allocator asks for huge pages. With many threads, each of which touches a few bytes of many sizes, the kernel would
    // zero 2 MiB for each of them: half of a mount's processor time. An old kernel refuses, and is only slower.
    let _ = nix::sys::prctl::set_thp_disable(true);
    margay::cli::main()
}
