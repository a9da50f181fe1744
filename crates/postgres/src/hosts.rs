//! The hosts that a URL names, each as a place of its own.
//!
//! Why:        of several the one that takes writes is looked for at all of them at once: one that hangs takes the connection and says nothing.
//! Not here:   which of them is chosen (primary).

use std::io;
use std::net::IpAddr;
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

/// For each host that the URL names; `connect_timeout` in it counts more.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(3);
/// What is sent and not acknowledged by the host; `tcp_user_timeout` in the URL counts more.
const UNANSWERED_TIME_MAX: Duration = Duration::from_secs(8);
/// Without traffic the host is asked whether it is there; `keepalives_interval` in the URL counts more.
const KEEPALIVE_EVERY: Duration = Duration::from_secs(2);
const KEEPALIVES_MAX: u32 = 3;

/// One of them, and how people know it.
#[derive(Clone, Debug)]
pub(crate) struct OneHost {
    pub(crate) config: Config,
    pub(crate) name: String,
    /// Of a connection to one of its addresses until it can be used.
    pub(crate) connect_time_max: Duration,
}

impl OneHost {
    /// For each address of the name: one may be that of a standby, another one that of the server that takes writes.
    pub(crate) async fn places(&self) -> io::Result<Vec<Config>> {
        let [Host::Tcp(name)] = self.config.get_hosts() else { return Ok(vec![self.config.clone()]) };
        if !self.config.get_hostaddrs().is_empty() || name.parse::<IpAddr>().is_ok() {
            return Ok(vec![self.config.clone()]);
        }
        let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
        let place = |address: IpAddr| {
            let mut config = self.config.clone();
            config.hostaddr(address);
            config
        };
        Ok(found.map(|found| place(found.ip())).collect())
    }
}

/// Each host of the URL with all that the URL says beside it.
pub(crate) fn split(all: &Config) -> Vec<OneHost> {
    let count = all.get_hosts().len().max(all.get_hostaddrs().len());
    (0..count).map(|at| one(all, at)).collect()
}

fn one(all: &Config, at: usize) -> OneHost {
    let mut config = Config::new();
    let mut name = String::new();
    if let Some(address) = all.get_hostaddrs().get(at) {
        name = address.to_string();
        config.hostaddr(*address);
    }
    match all.get_hosts().get(at) {
        Some(Host::Tcp(host)) => {
            name.clone_from(host);
            config.host(host);
        }
        Some(Host::Unix(folder)) => {
            name = folder.display().to_string();
            config.host_path(folder);
        }
        None => {}
    }
    // One port counts for all hosts.
    if let Some(port) = all.get_ports().get(at).or(all.get_ports().first()) {
        config.port(*port);
    }
    if let Some(user) = all.get_user() {
        config.user(user);
    }
    if let Some(password) = all.get_password() {
        config.password(password);
    }
    if let Some(name) = all.get_dbname() {
        config.dbname(name);
    }
    if let Some(options) = all.get_options() {
        config.options(options);
    }
    if let Some(name) = all.get_application_name() {
        config.application_name(name);
    }
    config.ssl_mode(all.get_ssl_mode()).ssl_negotiation(all.get_ssl_negotiation());
    config.channel_binding(all.get_channel_binding()).keepalives(all.get_keepalives());
    let connect_time_max = all.get_connect_timeout().copied().unwrap_or(CONNECT_TIME_MAX);
    config.connect_timeout(connect_time_max);
    be_impatient(&mut config, all);
    OneHost { config, name, connect_time_max }
}

/// A host that is gone says nothing: without this the system would wait for it a quarter of an hour.
fn be_impatient(config: &mut Config, all: &Config) {
    config.tcp_user_timeout(all.get_tcp_user_timeout().copied().unwrap_or(UNANSWERED_TIME_MAX));
    let Some(interval) = all.get_keepalives_interval() else {
        // While it works on a long commit nothing else is sent.
        config.keepalives_idle(KEEPALIVE_EVERY).keepalives_interval(KEEPALIVE_EVERY).keepalives_retries(KEEPALIVES_MAX);
        return;
    };
    config.keepalives_idle(all.get_keepalives_idle()).keepalives_interval(interval);
    if let Some(retries) = all.get_keepalives_retries() {
        config.keepalives_retries(retries);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_has_what_the_url_says() {
        let all: Config =
            "host=a,/run/b,c port=1,2,3 user=u password=p dbname=d keepalives_interval=7".parse().unwrap();
        let split = split(&all);
        assert_eq!(split.iter().map(|host| host.name.as_str()).collect::<Vec<_>>(), ["a", "/run/b", "c"]);
        for (at, host) in split.iter().enumerate() {
            assert_eq!(host.config.get_hosts(), &all.get_hosts()[at..=at]);
            assert_eq!(host.config.get_ports(), [at as u16 + 1]);
            assert_eq!((host.config.get_user(), host.config.get_dbname()), (Some("u"), Some("d")));
            assert_eq!(host.config.get_password(), Some(&b"p"[..]));
            assert_eq!(host.config.get_keepalives_interval(), Some(Duration::from_secs(7)));
        }
        let all: Config = "postgres://u@a,b/d".parse().unwrap();
        let ports: Vec<_> = super::split(&all).iter().map(|host| host.config.get_ports().to_vec()).collect();
        assert_eq!(ports, [all.get_ports().get(..1).unwrap_or_default(), all.get_ports().get(..1).unwrap_or_default()]);
    }

    #[tokio::test]
    async fn a_name_is_tried_at_each_of_its_addresses() {
        let places = async |url: &str| split(&url.parse().unwrap())[0].places().await.unwrap();
        let named = places("host=localhost port=7").await;
        assert!(!named.is_empty());
        for place in &named {
            assert!(matches!(place.get_hostaddrs(), [address] if address.is_loopback()), "{place:?}");
            assert_eq!(place.get_hosts(), [Host::Tcp("localhost".to_owned())], "certificates are of names");
            assert_eq!(place.get_ports(), [7]);
        }
        for url in ["host=127.0.0.1", "host=/run/b", "host=localhost hostaddr=127.0.0.1"] {
            assert_eq!(places(url).await.len(), 1, "{url}");
        }
    }
}
