//! The binary `margay`.

fn main() {}
