//! Which suites `bench all` runs, with sizes that take some minutes together on two cores.

use super::server::Server;
use crate::error::BenchError;
use crate::rivals::{Gives, RivalArgs};

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
}

impl Step {
    /// As one would type it.
    pub(super) fn command(&self) -> String {
        self.arguments.join(" ")
    }
}

/// All suites; those that rivals can take part in have a smaller size then, since some of them are a hundred times slower,
/// unless it is to be `full`.
pub(super) fn steps(server: &Server, rivals: &RivalArgs, full: bool) -> Result<Vec<Step>, BenchError> {
    let file_systems = rivals.options(&[Gives::Directory])?;
    let servers = rivals.options(&[Gives::S3])?;
    let clients_too = match servers.is_empty() {
        true => Vec::new(),
        false => rivals.options(&[Gives::S3, Gives::Listing])?,
    };
    let alone = |name, title, options: &str| {
        let arguments = format!("bench {options} --endpoint {}", server.endpoint);
        Step { name, title, arguments: words(&arguments) }
    };
    let s3 = |name, title, options: &str, beside_rivals: &str| {
        let beside_rivals = if full { options } else { beside_rivals };
        let (options, rivals) = match (servers.is_empty(), name) {
            (true, _) => (options, &servers),
            (false, "ls") => (beside_rivals, &clients_too),
            (false, _) => (beside_rivals, &servers),
        };
        let mut step = alone(name, title, options);
        step.arguments.extend_from_slice(rivals);
        step
    };
    let placed = |name, title, options: &str| {
        let mut arguments = words(&format!("bench {options}"));
        for directory in &server.directories {
            arguments.extend(["--dir".to_owned(), (*directory).to_owned()]);
        }
        Step { name, title, arguments }
    };
    let directories = |name, title, options: &str, beside_rivals: &str| {
        let mut step = placed(name, title, if full || file_systems.is_empty() { options } else { beside_rivals });
        step.arguments.extend_from_slice(&file_systems);
        step
    };
    let mut steps = vec![
        s3("ls", "Listing", "ls --keys 500,1000,2000,5000,10000 --runs 3", "ls --keys 1000,10000 --runs 3 --rounds 1"),
        alone("growth", "Pages of a growing bucket", "ls --keys= --growth 1000,10000,100000 --no-s3cmd"),
        s3(
            "load-put",
            "Small objects written",
            "load --connections 64 --size 1k-4k --mix put=100 --seconds 10",
            "load --connections 64 --size 1k-4k --mix put=100 --seconds 5",
        ),
        s3(
            "load-get",
            "Small objects read",
            "load --connections 64 --size 1k --mix get=100 --keys 10000 --seconds 10",
            "load --connections 64 --size 1k --mix get=100 --keys 2000 --seconds 5",
        ),
        s3(
            "auth",
            "Signatures",
            "auth --keys 1500 --cases unsigned,v2,v4,v4chunk,get-unsigned,get-v2,get-v4",
            "auth --keys 200 --cases unsigned,v2,v4,v4chunk,get-unsigned,get-v2,get-v4 --rounds 2",
        ),
        directories("dirops", "Many files of one directory", "dirops --clients 1,4", "dirops --clients 1 --files 500"),
        placed(
            "dirops-curve",
            "Growing directories",
            "dirops --points 1000,10000,100000 --limit 5s --rounds 1 --rival ext4,ext4-no-dir-index",
        ),
        directories("mdtest", "mdtest", "mdtest", "mdtest --depth 2"),
        directories("goofys", "goofys' everyday tests", "goofys --size 100m", "goofys --size 50m"),
        directories("small", "A small site's files", "small", "small --files 640"),
        directories("stream", "One large file", "stream --size 512m", "stream --size 128m"),
    ];
    steps.extend(listing_through_mounts(server, &file_systems, full));
    Ok(steps)
}

fn listing_through_mounts(server: &Server, rivals: &[String], full: bool) -> Option<Step> {
    if !server.is_mounted() {
        return None;
    }
    let mut arguments = words(match full || rivals.is_empty() {
        true => "bench ls --total 20000,100000 --runs 3",
        false => "bench ls --total 12000 --objects 1000,5000 --clients 1,3 --runs 5 --rounds 1",
    });
    arguments.push("--mounts".to_owned());
    arguments.extend(server.mounts.iter().map(|mount| (*mount).to_owned()));
    arguments.extend_from_slice(rivals);
    Some(Step { name: "ls-mounts", title: "Listing through mounts", arguments })
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Parsed {
        #[command(flatten)]
        rivals: RivalArgs,
        #[arg(long)]
        full: bool,
    }

    fn planned(arguments: &[&str]) -> Vec<Step> {
        let parsed = Parsed::parse_from(std::iter::once(&"x").chain(arguments));
        steps(&Server::nowhere(), &parsed.rivals, parsed.full).unwrap()
    }

    #[test]
    fn every_suite_has_its_name() {
        let steps = planned(&[]);
        let mut names: Vec<&str> = steps.iter().map(|step| step.name).collect();
        let mut known = NAMES.to_vec();
        names.sort_unstable();
        known.sort_unstable();
        assert_eq!(names, known);
        assert!(steps.iter().all(|step| step.command().starts_with("bench ") && !step.command().contains("--store")));
    }

    #[test]
    fn rivals_take_part_in_what_they_can() {
        let steps = planned(&["--rival", "s3fs,minio", "--rival", "s3cmd", "--latency", "10ms", "--store", "minio"]);
        let of = |name: &str| steps.iter().find(|step| step.name == name).unwrap().command();
        assert!(of("small").contains("--rival s3fs --store minio --latency 10ms"), "{}", of("small"));
        assert!(of("load-put").contains("--rival minio "), "{}", of("load-put"));
        assert!(of("ls").contains("--rival minio,s3cmd "), "{}", of("ls"));
        assert!(!of("growth").contains("--rival"), "{}", of("growth"));
        assert!(of("mdtest").contains("--depth 2 --dir plain --dir mount"), "{}", of("mdtest"));
        assert!(planned(&["--rival", "s3fs", "--full"]).iter().all(|step| !step.command().contains("--depth 2")));
    }
}
