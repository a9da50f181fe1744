//! What cargo knows about the packages.

use std::process::Command;

use serde_json::Value;

fn cargo(arguments: &[&str]) -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1"])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The workspace's own packages.
pub(crate) fn workspace() -> Value {
    cargo(&["--no-deps"])
}

/// Every package that is compiled into something on this machine, by the workspace of this manifest.
pub(crate) fn everything(manifest: &str) -> Value {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let text = String::from_utf8(rustc.stdout).unwrap();
    let host = text.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
    cargo(&["--filter-platform", host, "--manifest-path", manifest])
}

/// Packages of a metadata document.
pub(crate) fn packages(metadata: &Value) -> &[Value] {
    metadata["packages"].as_array().unwrap()
}
