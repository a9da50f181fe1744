//! `simulate`: what somebody may do and why, decided by the server's own policies.
//!
//! Why:        "may ann GetObject photos/cat.jpg, and why not?" should not need ann's keys.
//! Invariants: M1 at most `QUESTIONS_MAX` questions at once, and nothing is done but reading.
//! Not here:   the decision (margay-s3).

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use margay_accounts::identities::NotOrdered;
use margay_s3::identities::Identities;
use margay_s3::simulation::{Given, QUESTIONS_MAX, Question, Simulation, is_asked, shown};
use serde_json::{Value, json};

use super::{NotDone, WorkAnswer, bad_wish};
use crate::server::Server;

impl Server {
    /// Answers questions about what users may do.
    pub fn simulation(&self) -> Simulation<'_> {
        let identities = Arc::clone(&self.identities) as Arc<dyn Identities>;
        Simulation::new(&self.storage.volume, identities, &self.region, self.env.clock.now())
    }
}

pub(super) async fn answer(server: &Arc<Server>, wish: Value) -> Result<WorkAnswer, NotDone> {
    let who = wish["who"].as_str().ok_or_else(|| bad_wish("the request lacks who"))?;
    let peer = match wish["source_ip"].as_str() {
        None => IpAddr::from(Ipv4Addr::LOCALHOST),
        Some(text) => text.parse().map_err(|_| bad_wish(format!("source_ip: {text} is no address")))?,
    };
    let secure = wish["secure"].as_bool().unwrap_or(server.tls.is_some());
    let given = Given { peer, secure, prefix: wish["prefix"].as_str().map(str::to_owned) };
    let (questions, simulation) = (questions(&wish["questions"]).map_err(bad_wish)?, server.simulation());
    if let Some(Question { action, .. }) = questions.iter().find(|question| !is_asked(&question.action)) {
        return Err(bad_wish(format!(
            "{action} is no action of S3; they are named as in policies, such as s3:GetObject"
        )));
    }
    let identity = simulation.identity(who).await.map_err(NotOrdered::from)?;
    let mut verdicts = Vec::with_capacity(questions.len());
    for question in &questions {
        let verdict = simulation.answer(identity.as_deref(), &given, question).await;
        let Question { action, resource } = question;
        let (allowed, because) = (verdict.allowed, verdict.because);
        verdicts.push(json!({ "action": action, "resource": resource, "allowed": allowed, "because": because }));
    }
    Ok(WorkAnswer::Value(json!({ "who": shown(identity.as_deref()), "verdicts": verdicts })))
}

/// `[{"action": "s3:GetObject", "resource": "photos/cat.jpg"}]`; the error is one line.
pub fn questions(list: &Value) -> Result<Vec<Question>, String> {
    let list = list.as_array().ok_or("questions is a list of actions and resources")?;
    if list.len() > QUESTIONS_MAX {
        return Err(format!("at most {QUESTIONS_MAX} questions at once"));
    }
    let one = |value: &Value| {
        let text =
            |name: &str| value[name].as_str().map(str::to_owned).ok_or_else(|| format!("a question lacks {name}"));
        Ok(Question { action: text("action")?, resource: text("resource")? })
    };
    list.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_read_and_bounded() {
        let good = json!([{ "action": "s3:GetObject", "resource": "b/k" }]);
        let wanted = Question { action: "s3:GetObject".to_owned(), resource: "b/k".to_owned() };
        assert_eq!(questions(&good), Ok(vec![wanted]));
        let many: Vec<Value> = vec![good[0].clone(); QUESTIONS_MAX + 1];
        for bad in [json!(null), json!([{}]), json!([{ "action": "x", "resource": 7 }]), json!(many)] {
            assert!(questions(&bad).is_err(), "{bad}");
        }
    }
}
