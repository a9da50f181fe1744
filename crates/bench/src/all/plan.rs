//! Which suites `bench all` runs, with sizes that take some minutes together on two cores.

use std::path::{Path, PathBuf};

use super::server::Server;

/// Names of the suites, in their order.
pub(super) const NAMES: [&str; 12] = [
    "ls",
    "growth",
    "load-put",
    "load-get",
    "auth",
    "dirops",
    "dirops-curve",
    "goofys",
    "mdtest",
    "small",
    "stream",
    "ls-mounts",
];

/// One suite.
#[derive(Debug)]
pub(super) struct Step {
    /// Also the folder of its files.
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    pub(super) arguments: Vec<String>,
    /// It measures directories: the plain one and the mount.
    pub(super) directories: bool,
}

impl Step {
    /// As one would type it.
    pub(super) fn command(&self) -> String {
        self.arguments.join(" ")
    }
}

pub(super) fn steps(server: &Server) -> Vec<Step> {
    let s3 = |name, title, options: &str| {
        let arguments = format!("bench {options} --endpoint {}", server.endpoint);
        Step { name, title, arguments: words(&arguments), directories: false }
    };
    let directories = |name, title, options: &str| {
        let mut arguments = words(&format!("bench {options}"));
        let places: Vec<&Path> = [Some(&*server.plain), server.mount.as_deref()].into_iter().flatten().collect();
        for place in places {
            arguments.extend(["--dir".to_owned(), place.display().to_string()]);
        }
        Step { name, title, arguments, directories: true }
    };
    let listed = |mounts: Vec<&Path>| {
        let mut arguments = words("bench ls --total 20000,100000 --runs 3 --mounts");
        arguments.extend(mounts.iter().map(|mount| mount.display().to_string()));
        Step { name: "ls-mounts", title: "Listing through mounts", arguments, directories: true }
    };
    let mut steps = vec![
        s3("ls", "Listing", "ls --keys 500,1000,2000,5000,10000 --runs 3"),
        s3("growth", "Pages of a growing bucket", "ls --keys= --growth 1000,10000,100000 --no-s3cmd"),
        s3("load-put", "Small objects written", "load --connections 64 --size 1k-4k --mix put=100 --seconds 10"),
        s3("load-get", "Small objects read", "load --connections 64 --size 1k --mix get=100 --keys 10000 --seconds 10"),
        s3("auth", "Signatures", "auth --keys 1500 --cases unsigned,v2,v4,v4chunk,get-unsigned,get-v2,get-v4"),
        directories("dirops", "Many files of one directory", "dirops --clients 1,4"),
        directories(
            "dirops-curve",
            "Growing directories",
            "dirops --points 1000,10000,100000 --limit 5s --rounds 1 --rival ext4,ext4-no-dir-index",
        ),
        directories("mdtest", "mdtest", "mdtest"),
        directories("goofys", "goofys' everyday tests", "goofys --size 100m"),
        directories("small", "A small site's files", "small"),
        directories("stream", "One large file", "stream --size 512m"),
    ];
    if let Some(mount) = &server.mount {
        steps.push(listed([mount].into_iter().chain(&server.more_mounts).map(PathBuf::as_path).collect()));
    }
    steps
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_suite_has_its_name() {
        let server = Server::nowhere();
        let mut names: Vec<&str> = steps(&server).iter().map(|step| step.name).collect();
        let mut known = NAMES.to_vec();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
        assert!(steps(&server).iter().all(|step| step.command().starts_with("bench ")));
    }
}
