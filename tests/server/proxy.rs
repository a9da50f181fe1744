//! A way to a server that can be cut, or held up, or answers by itself.

#![allow(dead_code, reason = "each file of tests uses a part of it")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

pub(crate) struct Proxy {
    pub(crate) endpoint: String,
    is_cut: Arc<AtomicBool>,
    held: Arc<(Mutex<bool>, Condvar)>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    answer: Arc<Mutex<Option<String>>>,
}

/// Reads what is sent first, and answers with a status and a code.
fn answer(mut client: TcpStream, status_and_code: &str) {
    let _ = client.read(&mut [0; 64 << 10]);
    let (status, code) = status_and_code.split_once(' ').unwrap();
    let body = format!("<Error><Code>{code}</Code></Error>");
    let head = format!("HTTP/1.1 {status} {code}\r\ncontent-length: {}\r\nconnection: close", body.len());
    let _ = client.write_all(format!("{head}\r\n\r\n{body}").as_bytes());
}

impl Proxy {
    pub(crate) fn start(endpoint: &str) -> Proxy {
        let to = endpoint.strip_prefix("http://").unwrap().to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (is_cut, open) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let held = Arc::new((Mutex::new(false), Condvar::new()));
        let (cut, all, hold) = (Arc::clone(&is_cut), Arc::clone(&open), Arc::clone(&held));
        let answer_all = Arc::<Mutex<Option<String>>>::default();
        let own = Arc::clone(&answer_all);
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                // Held until the connection is among those that a cut breaks.
                let mut all = all.lock().unwrap();
                if cut.load(Ordering::SeqCst) {
                    continue;
                }
                if let Some(text) = own.lock().unwrap().clone() {
                    thread::spawn(move || answer(client, &text));
                    continue;
                }
                let Ok(server) = TcpStream::connect(&to) else { continue };
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let hold = Arc::clone(&hold);
                    thread::spawn(move || {
                        let mut bytes = vec![0; 64 << 10];
                        while let Ok(count @ 1..) = from.read(&mut bytes) {
                            drop(hold.1.wait_while(hold.0.lock().unwrap(), |held| *held).unwrap());
                            if to.write_all(&bytes[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                all.extend([client, server]);
            }
        });
        Proxy { endpoint, is_cut, held, open, answer: answer_all }
    }

    /// Connections break, and new ones too.
    pub(crate) fn cut(&self) {
        let mut open = self.open.lock().unwrap();
        self.is_cut.store(true, Ordering::SeqCst);
        for one in open.drain(..) {
            let _ = one.shutdown(Shutdown::Both);
        }
    }

    /// Each new request gets this answer, such as `503 SlowDown`; with an empty one all is as before.
    pub(crate) fn answer(&self, text: &str) {
        *self.answer.lock().unwrap() = Some(text.to_owned()).filter(|text| !text.is_empty());
    }

    /// Nothing passes, and nothing breaks, until it is let go.
    pub(crate) fn hold(&self) {
        *self.held.0.lock().unwrap() = true;
    }

    pub(crate) fn let_go(&self) {
        *self.held.0.lock().unwrap() = false;
        self.held.1.notify_all();
    }

    pub(crate) fn mend(&self) {
        self.is_cut.store(false, Ordering::SeqCst);
    }
}
