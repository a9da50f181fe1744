//! `margay cluster init`: settings of etcd, Patroni, PostgreSQL, margay and systemd for the hosts of a cluster, written into a directory.
//!
//! Why:        a cluster that loses nothing depends on a dozen settings of three programs that all have other defaults.
//! Invariants: I1 nothing is started, stopped or changed but the new directory.
//!             I2 each password is made anew, is in the files of the hosts only, and is not shown.
//! Not here:   whether a running PostgreSQL is set up so (`margay cluster check`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use margay_env::{Env, files};

use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay cluster init --host a=10.0.0.1 --host b=10.0.0.2 --host c=10.0.0.3 --out cluster
  margay cluster init --host a=10.0.0.1,rack=1 --host b=10.0.0.2,rack=2 --host c=10.0.0.3,rack=3 --patroni 4 --out cluster

It writes files only; the README.md among them says what to do with them. Each host runs etcd, Patroni with PostgreSQL, and margay.
Say which version of Patroni the hosts have (`patroni --version`): 3 speaks another version of the language of etcd, since in the newer
one a primary that stood still takes its place back from the one that took it over, and what was written meanwhile is lost.
With --quorum (Patroni 4) a commit waits for any one of the standbys, so that the death of one is not noticed; without it for a chosen
one, and for about three seconds longer when that one dies. --quorum needs a watchdog (modprobe softdog): if Patroni alone is killed at
the primary, what was answered within a second may be lost.";

/// etcd needs most of them.
const HOSTS_MIN: usize = 3;
const HOSTS_MAX: usize = 7;
/// It also asks whether it still has the key of the primary before it renews it through the newer language of etcd.
const PATRONI_WITH_QUORUM: u8 = 4;
/// More are seldom worth their disks.
const COPIES_MAX: usize = 3;
const SECRET_BYTES: usize = 20;
/// Of the files with encryption keys and the key of secrets.
const KEY_BYTES: usize = 32;

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Init {
    /// A host: its name and its address, and where it stands; three to seven
    #[arg(long = "host", value_name = "NAME=ADDRESS[,rack=RACK]", required = true)]
    hosts: Vec<String>,
    /// The directory to make
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// The cluster's name, for etcd and Patroni
    #[arg(long, value_name = "NAME", default_value = "margay")]
    name: String,
    /// Major version of Patroni at the hosts
    #[arg(long, value_name = "VERSION", default_value_t = 3)]
    patroni: u8,
    /// Commits wait for any one standby (Patroni 4 and later)
    #[arg(long)]
    quorum: bool,
    /// Major version of PostgreSQL, whose programs are in /usr/lib/postgresql/VERSION/bin
    #[arg(long, value_name = "VERSION", default_value_t = 15)]
    postgres: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Host {
    name: String,
    address: String,
    rack: String,
}

/// The files of a host's folder.
const TEMPLATES: [(&str, &str); 11] = [
    ("install.sh", include_str!("init/install.sh")),
    ("etcd.env", include_str!("init/etcd.env")),
    ("patroni.yml", include_str!("init/patroni.yml")),
    ("bootstrap.sh", include_str!("init/bootstrap.sh")),
    ("margay.toml", include_str!("init/margay.toml")),
    ("margay.env", include_str!("init/margay.env")),
    ("margay-etcd.service", include_str!("init/margay-etcd.service")),
    ("margay-patroni.service", include_str!("init/margay-patroni.service")),
    ("margay.service", include_str!("init/margay.service")),
    (margay_accounts::identities::KEY_FILE, "{{identity_key}}\n"),
    (margay_accounts::encryption_keys::FILE, "{{encryption_key}}\n"),
];
const README: &str = include_str!("init/README.md");

fn is_name(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    !name.is_empty() && name.len() <= 63 && !name.starts_with('-') && name.bytes().all(is_part)
}

/// An IPv4 address or a name of DNS: what may stand before `:PORT` in all these files.
fn is_address(address: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    !address.is_empty() && address.len() <= 253 && address.bytes().all(is_part)
}

fn is_number(address: &str) -> bool {
    address.parse::<std::net::Ipv4Addr>().is_ok()
}

fn host_of(word: &str) -> Result<Host, Failure> {
    let wrong = |why: &str| {
        Failure::usage(format!("--host {word}: {why}; for example --host a=10.0.0.1 or --host a=10.0.0.1,rack=2"))
    };
    let (name, rest) = word.split_once('=').ok_or_else(|| wrong("there is no address"))?;
    let (address, rack) = match rest.split_once(',') {
        None => (rest, ""),
        Some((address, more)) => {
            (address, more.strip_prefix("rack=").ok_or_else(|| wrong("after the address there is rack=NAME"))?)
        }
    };
    if !is_name(name) {
        return Err(wrong("a name has lower-case letters, digits and -"));
    }
    if !is_address(address) || ["0.0.0.0", "localhost"].contains(&address) {
        return Err(wrong("the address is one at which the other hosts reach it, without a port"));
    }
    if !rack.is_empty() && (!margay_volume::is_rack(rack) || rack.contains(['"', '\\'])) {
        return Err(wrong("a rack is a name of up to 64 bytes without spaces and quotes"));
    }
    Ok(Host { name: name.to_owned(), address: address.to_owned(), rack: rack.to_owned() })
}

fn hosts_of(words: &[String]) -> Result<Vec<Host>, Failure> {
    let hosts = words.iter().map(|word| host_of(word)).collect::<Result<Vec<Host>, Failure>>()?;
    if !(HOSTS_MIN..=HOSTS_MAX).contains(&hosts.len()) {
        return Err(Failure::usage(format!(
            "{} hosts: a cluster that outlives one of them has {HOSTS_MIN} to {HOSTS_MAX}",
            hosts.len()
        )));
    }
    let names: BTreeSet<&str> = hosts.iter().map(|host| host.name.as_str()).collect();
    let addresses: BTreeSet<&str> = hosts.iter().map(|host| host.address.as_str()).collect();
    if names.len() < hosts.len() || addresses.len() < hosts.len() {
        return Err(Failure::usage("two hosts have one name or one address".to_owned()));
    }
    Ok(hosts)
}

/// Of the cluster, the same at all hosts.
type Values = Vec<(&'static str, String)>;

fn filled(template: &str, values: &[(&'static str, String)]) -> String {
    let text =
        values.iter().fold(template.to_owned(), |text, (name, value)| text.replace(&format!("{{{{{name}}}}}"), value));
    assert!(!text.contains("{{"), "each place of a template has a value");
    text
}

fn secret(env: &Env, bytes: usize) -> String {
    let mut secret = vec![0; bytes];
    env.random.fill(&mut secret);
    base16ct::lower::encode_string(&secret)
}

fn list(hosts: &[Host], separator: &str, text: impl Fn(&Host) -> String) -> String {
    hosts.iter().map(text).collect::<Vec<_>>().join(separator)
}

fn values(env: &Env, init: &Init, hosts: &[Host]) -> Values {
    let access = |host: &Host| {
        let Host { address, .. } = host;
        let rule = |base: &str, user: &str| format!("    - host {base} {user} {address}/32 scram-sha-256");
        // A name of DNS has no length of a network.
        let rules = [("all", "all"), ("replication", "replicator")].map(|(base, user)| rule(base, user)).join("\n");
        if is_number(address) { rules } else { rules.replace("/32", "") }
    };
    let mode = if init.quorum { "quorum" } else { "\"on\"" };
    let is_old = init.patroni < PATRONI_WITH_QUORUM;
    let of_hosts = [
        ("etcd_section", if is_old { "etcd" } else { "etcd3" }.to_owned()),
        ("etcd_v2", if is_old { "ETCD_ENABLE_V2=true" } else { "" }.to_owned()),
        ("etcd_cluster", list(hosts, ",", |host| format!("{}=http://{}:2380", host.name, host.address))),
        ("etcd_hosts", list(hosts, ", ", |host| format!("\"{}:2379\"", host.address))),
        ("database_hosts", list(hosts, ",", |host| host.address.clone())),
        ("hba", list(hosts, "\n", access)),
        ("hosts_text", list(hosts, ", ", |host| format!("{} ({})", host.name, host.address))),
        ("s3_hosts", list(hosts, ", ", |host| format!("http://{}:9000", host.address))),
        ("patroni_urls", list(hosts, ",", |host| format!("http://{}:8008", host.address))),
        (
            "copy_commands",
            list(hosts, "\n", |host| format!("    scp -r {0} root@{1}:margay-{0}", host.name, host.address)),
        ),
        ("copies", hosts.len().min(COPIES_MAX).to_string()),
        ("cluster", init.name.clone()),
        ("synchronous_mode", mode.to_owned()),
        ("postgres", init.postgres.to_string()),
        ("identity_key", secret(env, KEY_BYTES)),
        ("encryption_key", secret(env, KEY_BYTES)),
        ("access_key", secret(env, SECRET_BYTES / 2).to_uppercase()),
    ];
    let names = [
        "rest_password",
        "postgres_password",
        "replication_password",
        "rewind_password",
        "database_password",
        "secret_key",
    ];
    of_hosts.into_iter().chain(names.map(|name| (name, secret(env, SECRET_BYTES)))).collect()
}

fn cannot(path: &Path, error: &std::io::Error) -> Failure {
    Failure::failed(format!("{} cannot be written: {error}; {}", path.display(), files::remedy(error)))
}

fn write(env: &Env, path: &Path, text: &str) -> Result<(), Failure> {
    files::write_new(env, path, text.as_bytes()).map_err(|error| cannot(path, &error))
}

pub(super) fn run(init: &Init) -> Result<(), Failure> {
    let env = Env::real();
    if init.quorum && init.patroni < PATRONI_WITH_QUORUM {
        let said = "Patroni before 4 takes --quorum for no synchronous standby at all, and loses commits; with 4 or later say --patroni 4";
        return Err(Failure::usage(said.to_owned()));
    }
    let hosts = hosts_of(&init.hosts)?;
    if !is_name(&init.name) {
        return Err(Failure::usage("the cluster's name has lower-case letters, digits and -".to_owned()));
    }
    if init.out.exists() {
        return Err(Failure::refused(format!(
            "{} is there already, and may have the passwords of a cluster: name another --out",
            init.out.display()
        )));
    }
    // What is in it has passwords.
    env.disk.create_private_dir(&init.out).map_err(|error| cannot(&init.out, &error))?;
    let shared = values(&env, init, &hosts);
    for host in &hosts {
        let rack = if host.rack.is_empty() { String::new() } else { format!("rack = \"{}\"", host.rack) };
        // etcd listens at numbers only.
        let listen = if is_number(&host.address) { host.address.as_str() } else { "0.0.0.0" };
        let own = [
            ("name", host.name.clone()),
            ("address", host.address.clone()),
            ("listen_address", listen.to_owned()),
            ("rack", rack),
        ];
        let all: Values = own.into_iter().chain(shared.iter().cloned()).collect();
        let folder = init.out.join(&host.name);
        env.disk.create_private_dir(&folder).map_err(|error| cannot(&folder, &error))?;
        for (place, template) in TEMPLATES {
            write(&env, &folder.join(place), &filled(template, &all))?;
        }
    }
    write(&env, &init.out.join("README.md"), &filled(README, &shared))?;
    println!(
        "{} has a folder for each of {} hosts; what to do with them is in its README.md",
        init.out.display(),
        hosts.len()
    );
    Ok(())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test looks at files itself")]
mod tests {
    use std::fs;

    use super::*;

    fn wish(hosts: &[&str], out: PathBuf, quorum: bool) -> Init {
        let hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        Init { hosts, out, name: "margay".to_owned(), patroni: if quorum { 4 } else { 3 }, quorum, postgres: 15 }
    }

    #[test]
    fn each_host_gets_its_own_address_and_the_secrets_of_the_cluster() {
        let folder = tempfile::tempdir().unwrap();
        let hosts = ["a=10.0.0.1,rack=r1", "b=10.0.0.2", "c=db-c.example"];
        let out = folder.path().join("out");
        run(&wish(&hosts, out.clone(), true)).unwrap();
        let read = |place: &str| fs::read_to_string(out.join(place)).unwrap();
        let patroni = read("a/patroni.yml");
        for line in [
            "listen: 10.0.0.1:5432",
            "synchronous_mode: quorum",
            "synchronous_mode_strict: true",
            "hosts: [\"10.0.0.1:2379\", \"10.0.0.2:2379\", \"db-c.example:2379\"]",
            "- host all all db-c.example scram-sha-256",
            "- host replication replicator 10.0.0.2/32 scram-sha-256",
        ] {
            assert!(patroni.contains(line), "{line}: {patroni}");
        }
        let etcd = read("c/etcd.env");
        assert!(
            etcd.contains("LISTEN_PEER_URLS=http://0.0.0.0:")
                && etcd.contains("ADVERTISE_CLIENT_URLS=http://db-c.example:")
        );
        assert!(read("a/etcd.env").contains("LISTEN_CLIENT_URLS=http://10.0.0.1:"));
        assert!(read("a/margay.toml").contains("rack = \"r1\"") && !read("b/margay.toml").contains("\nrack"));
        let toml = read("c/margay.toml");
        crate::settings::file::read(&toml).unwrap();
        assert!(toml.contains("postgres://margay@10.0.0.1,10.0.0.2,db-c.example/margay"), "{toml}");
        for file in ["margay.env", "identity-key", "encryption-keys", "bootstrap.sh"] {
            assert_eq!(read(&format!("a/{file}")), read(&format!("b/{file}")), "{file}");
        }
        assert_ne!(read("a/identity-key"), read("a/encryption-keys"));
        let passwords: BTreeSet<&str> =
            patroni.lines().filter_map(|line| line.trim().strip_prefix("password: ")).collect();
        assert_eq!(passwords.len(), 4, "no password is used twice");
        assert!(patroni.contains("\netcd3:\n") && !read("a/etcd.env").contains("V2"));
        let other = folder.path().join("other");
        run(&wish(&hosts, other.clone(), false)).unwrap();
        let patroni = fs::read_to_string(other.join("a/patroni.yml")).unwrap();
        assert!(patroni.contains("synchronous_mode: \"on\"") && passwords.iter().all(|one| !patroni.contains(one)));
        // The newer language of etcd is not safe there.
        assert!(patroni.contains("\netcd:\n"));
        let unsafe_wish = Init { patroni: 3, ..wish(&hosts, folder.path().join("none"), true) };
        assert!(run(&unsafe_wish).unwrap_err().message.contains("--patroni 4"));
        // A second time would make other passwords.
        assert!(run(&wish(&hosts, other, false)).unwrap_err().message.contains("there already"));
    }

    #[test]
    fn hosts_that_make_no_cluster_are_refused() {
        let out = PathBuf::from("/nowhere");
        for (hosts, why) in [
            (&["a=10.0.0.1", "b=10.0.0.2"][..], "2 hosts"),
            (&["a=10.0.0.1", "a=10.0.0.2", "c=10.0.0.3"], "one name"),
            (&["a=10.0.0.1", "b=10.0.0.1", "c=10.0.0.3"], "one address"),
            (&["A=10.0.0.1", "b=10.0.0.2", "c=10.0.0.3"], "lower-case"),
            (&["a", "b=10.0.0.2", "c=10.0.0.3"], "no address"),
            (&["a=10.0.0.1:5432", "b=10.0.0.2", "c=10.0.0.3"], "without a port"),
            (&["a=localhost", "b=10.0.0.2", "c=10.0.0.3"], "other hosts"),
            (&["a=10.0.0.1,r", "b=10.0.0.2", "c=10.0.0.3"], "rack=NAME"),
        ] {
            let refused = run(&wish(hosts, out.clone(), false)).unwrap_err();
            assert!(refused.message.contains(why), "{hosts:?}: {}", refused.message);
        }
    }
}
