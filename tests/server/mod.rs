//! The binary as a child: started, asked, stopped.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

pub(crate) mod far;
pub(crate) mod ports;
pub(crate) mod proxy;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use margay_client::{Credentials, Target};
use rustix::process::{Pid, Signal, kill_process};

/// How long an answer of the control socket may take.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);

/// Nothing that is waited for takes longer, on any machine that tests run on.
pub(crate) const TIME_MAX: Duration = Duration::from_secs(120);

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < TIME_MAX, "it does not become so: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub(crate) fn margay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_margay"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("MARGAY_") || name.starts_with("AWS_")) {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

pub(crate) fn run(arguments: &[&str]) -> Output {
    margay().args(arguments).output().unwrap()
}

/// A command that must end with this code; gives its stdout, or its stderr when it failed.
pub(crate) fn ends(code: i32, arguments: &[&str]) -> String {
    let output = run(arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let (out, error) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{arguments:?}\n{out}\n{error}");
    if code == 0 { out } else { error }
}

pub(crate) struct Server {
    pub(crate) child: Child,
    pub(crate) data: PathBuf,
    pub(crate) screen: String,
    pub(crate) endpoint: String,
}

impl Server {
    pub(crate) fn start(data: &Path) -> Server {
        Server::start_with(data, &[])
    }

    pub(crate) fn start_with(data: &Path, more: &[&str]) -> Server {
        Server::at("127.0.0.1:0", data, more)
    }

    /// On a port that it finds free again when it is started again.
    pub(crate) fn start_to_stop(data: &Path) -> Server {
        Server::at(&format!("127.0.0.1:{}", ports::free_port()), data, &[])
    }

    /// On this address.
    pub(crate) fn at(address: &str, data: &Path, more: &[&str]) -> Server {
        let mut command = margay();
        command.args(["serve", "--address", address, "--admin-address", "127.0.0.1:0", "--data"]);
        command.arg(data).args(more).stderr(Stdio::null());
        Server::started(command, data)
    }

    /// By a command that serves; waits for its screen.
    pub(crate) fn started(mut command: Command, data: &Path) -> Server {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut screen = String::new();
        while !screen.contains("Ctrl-C") {
            screen.push_str(&lines.next().expect("the start screen ends early").unwrap());
            screen.push('\n');
        }
        let line = screen.lines().find(|line| line.trim_start().starts_with("S3 ")).unwrap();
        let endpoint = line.split_whitespace().nth(1).unwrap().to_owned();
        Server { child, data: data.to_owned(), screen, endpoint }
    }

    /// The keys of its data directory.
    pub(crate) fn keys(&self) -> Credentials {
        let keys = fs::read_to_string(self.data.join("keys")).unwrap();
        let value = |name: &str| {
            let line = keys.lines().find(|line| line.starts_with(name)).unwrap();
            line.split(" = ").nth(1).unwrap().to_owned()
        };
        Credentials { access_key: value("aws_access_key_id"), secret_key: value("aws_secret_access_key") }
    }

    /// The server, with these keys.
    pub(crate) fn target(&self) -> Target {
        let address = self.endpoint.strip_prefix("http://").unwrap().parse().unwrap();
        Target::plain(address, self.keys().into())
    }

    pub(crate) fn client(&self, arguments: &[&str]) -> String {
        let mut all = vec!["client", "--data", self.data.to_str().unwrap(), "--endpoint", &self.endpoint];
        all.extend(arguments);
        ends(0, &all)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_raw(self.child.id() as i32).unwrap(), signal).unwrap();
    }

    pub(crate) fn code(mut self) -> Option<i32> {
        let begun = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(begun.elapsed() < Duration::from_secs(120), "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Gone already unless the test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn body(folder: &Path, name: &str, bytes: usize) -> PathBuf {
    let path = folder.join(name);
    let content: Vec<u8> = (0..bytes).map(|index| (index * 7 % 251) as u8).collect();
    fs::write(&path, content).unwrap();
    path
}

/// The whole answer of the control socket to a request, such as `GET /metrics`.
pub(crate) fn asked(data: &Path, request: &str, body: &str) -> String {
    let mut socket = UnixStream::connect(data.join("control")).unwrap();
    // A test of a server whose threads all wait ends.
    socket.set_read_timeout(Some(ANSWER_TIME_MAX)).unwrap();
    let length = body.len();
    let head = format!("{request} HTTP/1.1\r\nhost: margay\r\ncontent-length: {length}\r\nconnection: close");
    socket.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    answer
}

/// The sum of a metric over its labels, as the control socket shows it.
pub(crate) fn metric(data: &Path, name: &str) -> u64 {
    let page = asked(data, "GET /metrics", "");
    let values: Vec<u64> = page
        .lines()
        .filter(|line| line.split(['{', ' ']).next() == Some(name))
        .map(|line| line.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(!values.is_empty(), "{name} is missing in\n{page}");
    values.iter().sum()
}
