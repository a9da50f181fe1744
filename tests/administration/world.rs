//! A server with an audit log, and callers of it that have keys only.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

use crate::server::{Server, margay};

/// A key, as a caller from another machine has it.
pub(crate) struct Caller {
    pub(crate) endpoint: String,
    pub(crate) access_key: String,
    pub(crate) secret_key: String,
}

impl Caller {
    pub(crate) fn root(server: &Server) -> Caller {
        let keys = server.keys();
        Caller { endpoint: server.endpoint.clone(), access_key: keys.access_key, secret_key: keys.secret_key }
    }

    pub(crate) fn of(server: &Server, created: &Value) -> Caller {
        let text = |name: &str| created[name].as_str().unwrap().to_owned();
        Caller { endpoint: server.endpoint.clone(), access_key: text("access_key"), secret_key: text("secret_key") }
    }

    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = margay();
        command.args(words).env("MARGAY_ENDPOINT", &self.endpoint).env("MARGAY_ACCESS_KEY", &self.access_key);
        command.env("MARGAY_SECRET_KEY", &self.secret_key);
        // No directory of a server is here.
        command.current_dir("/");
        command
    }

    pub(crate) fn ends(&self, code: i32, words: &[&str]) -> String {
        let Output { status, stdout, stderr } = self.command(words).output().unwrap();
        let (out, error) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
        assert_eq!(status.code(), Some(code), "{words:?}\n{out}\n{error}");
        if code == 0 { out } else { error }
    }

    pub(crate) fn json(&self, words: &[&str]) -> Value {
        serde_json::from_str(&self.ends(0, words)).unwrap()
    }

    /// Status and body of one request to the server; `more` are header lines.
    pub(crate) fn raw(&self, head: &str, more: &str, body: &[u8]) -> (u16, String) {
        let host = self.endpoint.strip_prefix("http://").unwrap();
        let mut stream = TcpStream::connect(host).unwrap();
        let length = body.len();
        let head =
            format!("{head} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {length}\r\n{more}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        // A server that has refused need not read.
        let _ = stream.write_all(body);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
    }
}

pub(crate) fn audited(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn policy(folder: &Path, name: &str, statement: &Value) -> String {
    let path = folder.join(format!("{name}.json"));
    let document = json!({ "Version": "2012-10-17", "Statement": [statement] });
    fs::write(&path, document.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

pub(crate) struct World {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) server: Server,
    pub(crate) root: Caller,
}

impl World {
    pub(crate) fn new() -> World {
        let folder = tempfile::tempdir().unwrap();
        let audit = folder.path().join("audit.log");
        let setting = format!("audit_log={}", audit.display());
        let server = Server::start_with(&folder.path().join("data"), &["--set", &setting]);
        let root = Caller::root(&server);
        World { folder, server, root }
    }

    pub(crate) fn audit(&self) -> Vec<Value> {
        audited(&self.folder.path().join("audit.log"))
    }

    /// A user with one policy.
    pub(crate) fn user(&self, name: &str, statement: &Value) -> Caller {
        let created = self.root.json(&["user", "create", name, "--json"]);
        let file = policy(self.folder.path(), name, statement);
        self.root.ends(0, &["policy", "put", name, "--file", &file]);
        self.root.ends(0, &["policy", "attach", name, "--user", name]);
        Caller::of(&self.server, &created)
    }
}
