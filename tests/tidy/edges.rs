//! Which package may import which: the picture of ARCHITECTURE.md as a table.

use serde_json::{Value, json};

use crate::expect_none;
use crate::metadata::{packages, workspace};

/// Package, what it may import, and what besides in its tests.
const ALLOWED: &[(&str, &[&str], &[&str])] = &[
    ("margay-iam", &[], &[]),
    ("margay-select", &[], &[]),
    ("margay-env", &[], &[]),
    ("margay-disks", &["margay-env"], &["margay-meta", "margay-segment"]),
    ("margay-segment", &["margay-env"], &[]),
    ("margay-meta", &["margay-env", "margay-segment"], &[]),
    ("margay-postgres", &["margay-env", "margay-meta"], &[]),
    ("margay-rows", &["margay-env", "margay-meta", "margay-segment"], &[]),
    ("margay-volume", &["margay-env", "margay-meta", "margay-rows", "margay-segment"], &["margay-postgres"]),
    ("margay-s3", &["margay-env", "margay-iam", "margay-select", "margay-volume"], &["margay-meta", "margay-segment"]),
    ("margay-fuse", &["margay-env", "margay-volume"], &["margay-meta", "margay-segment"]),
    ("margay-client", &["margay-env", "margay-s3"], &[]),
    (
        "margay-upstream",
        &["margay-client", "margay-env", "margay-meta", "margay-rows", "margay-segment", "margay-volume"],
        &[],
    ),
    ("margay-metrics", &[], &[]),
    ("margay-listener", &["margay-env", "margay-metrics"], &[]),
    ("margay-console", &["margay-env", "margay-iam", "margay-listener", "margay-s3"], &[]),
    (
        "margay-cluster",
        &["margay-client", "margay-env", "margay-listener", "margay-meta", "margay-segment", "margay-volume"],
        &["margay-rows"],
    ),
    (
        "margay-accounts",
        &["margay-client", "margay-env", "margay-iam", "margay-s3", "margay-volume"],
        &["margay-meta", "margay-segment"],
    ),
    (
        "margay-jobs",
        &[
            "margay-client",
            "margay-env",
            "margay-meta",
            "margay-metrics",
            "margay-s3",
            "margay-segment",
            "margay-volume",
        ],
        &[],
    ),
    ("margay-bench", &["margay-client", "margay-env"], &["margay-volume", "margay-meta", "margay-segment"]),
    (
        "margay-sim",
        &[
            "margay-env",
            "margay-segment",
            "margay-meta",
            "margay-volume",
            "margay-s3",
            "margay-client",
            "margay-bench",
            "margay-accounts",
            "margay-listener",
            "margay",
        ],
        &[],
    ),
    (
        "margay",
        &[
            "margay-disks",
            "margay-env",
            "margay-segment",
            "margay-meta",
            "margay-volume",
            "margay-s3",
            "margay-fuse",
            "margay-bench",
            "margay-client",
            "margay-accounts",
            "margay-console",
            "margay-jobs",
            "margay-listener",
            "margay-metrics",
            "margay-upstream",
            "margay-postgres",
            "margay-cluster",
        ],
        &[],
    ),
];

/// Imports that the table does not allow, and packages that it does not know.
fn wrong_edges(metadata: &Value) -> Vec<String> {
    let mut findings = Vec::new();
    for package in packages(metadata) {
        let name = package["name"].as_str().unwrap();
        let Some((_, allowed, in_tests)) = ALLOWED.iter().find(|(known, ..)| *known == name) else {
            findings.push(format!("{name}: not in the table of tests/tidy/edges.rs; say what it may import"));
            continue;
        };
        for dependency in package["dependencies"].as_array().unwrap() {
            let to = dependency["name"].as_str().unwrap();
            let ours = to == "margay" || to.starts_with("margay-");
            let test_only = dependency["kind"] == "dev";
            if ours && !allowed.contains(&to) && !(test_only && in_tests.contains(&to)) {
                findings.push(format!("{name} must not import {to}"));
            }
        }
    }
    findings
}

#[test]
fn imports_point_one_way() {
    expect_none(&wrong_edges(&workspace()));
}

#[test]
fn canary_a_door_that_imports_the_engine_is_found() {
    let package =
        |name: &str, to: &str, kind: Value| json!({ "name": name, "dependencies": [{ "name": to, "kind": kind }] });
    let bad = json!({ "packages": [
        package("margay-s3", "margay-meta", Value::Null),
        package("margay-volume", "margay-s3", json!("dev")),
        package("margay-volume", "margay-sim", Value::Null),
        package("margay-new", "serde", Value::Null),
        package("margay-s3", "margay-volume", Value::Null),
    ] });
    assert_eq!(wrong_edges(&bad).len(), 4);
}

#[test]
fn canary_the_table_itself_has_no_cycle() {
    for (index, (name, allowed, _)) in ALLOWED.iter().enumerate() {
        for to in *allowed {
            let place = ALLOWED.iter().position(|(known, ..)| known == to).unwrap();
            assert!(place < index || (*name == "margay-sim" && *to == "margay"), "{name} -> {to} points up");
        }
    }
}
