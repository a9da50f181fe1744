//! Puts the web console where the settings say.
//!
//! Why:        the admin address is an origin of its own, so no object of a bucket has the console's; at the S3 address only one
//!             address has to be reachable, and it has TLS.
//! Not here:   what the console does (margay-console).

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use margay_console::{Console, ConsoleOptions, PATH, Pages, Rights, Who};
use margay_listener::Handler;
use margay_s3::identities::Identities;
use margay_s3::simulation::Given;
use serde_json::Value;

use crate::admin::Admin;
use crate::administration;
use crate::screen::endpoint;
use crate::server::Server;
use crate::settings::{ConsolePlace as Place, Settings};

impl Pages for Server {
    fn metrics(&self) -> Pin<Box<dyn Future<Output = String> + Send + '_>> {
        Box::pin(Server::metrics(self))
    }

    fn status(&self) -> Value {
        Server::status(self)
    }

    fn may<'r>(&'r self, who: Who<'r>, questions: &'r Value) -> Rights<'r> {
        Box::pin(async move {
            let (questions, simulation) = (administration::questions(questions)?, self.simulation());
            let given = Given { peer: who.peer.to_canonical(), secure: self.tls.is_some(), prefix: None };
            let mut allowed = Vec::with_capacity(questions.len());
            for question in &questions {
                allowed.push(simulation.answer(Some(who.identity), &given, question).await.allowed);
            }
            Ok(allowed)
        })
    }
}

/// The handlers of the S3 address and of the admin address, one of them with the console; `front` answers S3.
pub fn place(
    server: &Arc<Server>,
    settings: &Settings,
    front: Arc<dyn Handler>,
    address: Option<SocketAddr>,
) -> (Arc<dyn Handler>, Arc<dyn Handler>) {
    let admin: Arc<dyn Handler> = Arc::new(Admin::new(server, &settings.region));
    let console = |behind: &Arc<dyn Handler>| {
        let is_s3 = settings.console == Place::S3;
        let options = ConsoleOptions {
            region: settings.region.clone(),
            version: env!("CARGO_PKG_VERSION"),
            tls: is_s3 && settings.tls.is_some(),
            s3_scheme: if settings.tls.is_some() { "https" } else { "http" },
            s3_port: address.map(|address| address.port()),
            shares_origin: is_s3,
            website_domains: settings.website_domains.iter().map(|domain| domain.to_ascii_lowercase()).collect(),
        };
        let identities = Arc::clone(&server.identities) as Arc<dyn Identities>;
        let pages = Arc::clone(server) as Arc<dyn Pages>;
        let handlers = (Arc::clone(&front), Arc::clone(behind));
        Arc::new(Console::new(handlers, identities, pages, &server.env, options)) as Arc<dyn Handler>
    };
    match settings.console {
        Place::Off => (front, admin),
        Place::Admin => {
            let admin = console(&admin);
            (front, admin)
        }
        Place::S3 => (console(&front), admin),
    }
}

/// The URL of the console from this machine.
pub fn url(settings: &Settings, address: SocketAddr, admin: Option<SocketAddr>) -> Option<String> {
    let origin = match settings.console {
        Place::Off => return None,
        Place::Admin => endpoint(admin?, false),
        Place::S3 => endpoint(address, settings.tls.is_some()),
    };
    Some(format!("{origin}{PATH}/"))
}
