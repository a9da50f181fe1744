//! `margay cluster failover`: makes another server of PostgreSQL the primary, by Patroni.
//!
//! Why:        a machine is to be stopped, or the primary hangs while its Patroni still answers, which Patroni itself never ends.
//! Invariants: F1 only a standby that has all answered commits is named, so none is lost. One of a quorum may lack some: Patroni, which asks
//!                enough of them, chooses; and it does not ask them where one is named, unless the primary hands over itself.
//!             F2 Patroni does it: nothing here removes its keys or starts a server, which could make two primaries.
//! Not here:   Patroni's REST interface (patroni).

use std::time::Duration;

use margay_env::Env;

use super::patroni::{Member, Patroni, switch};
use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay cluster failover --patroni http://10.0.0.1:8008,http://10.0.0.2:8008,http://10.0.0.3:8008 --dry-run
  margay cluster failover --patroni http://10.0.0.1:8008,http://10.0.0.2:8008 --to b

A standby that has all answered commits becomes the primary, and the primary its standby. Nothing is lost; writes are refused for some
seconds. The password of Patroni's REST interface is read from MARGAY_PATRONI_PASSWORD; `cluster init` has written it into margay.env.
Where no primary is left Patroni makes one itself, unless no standby is sure to have all commits: nothing here overrules it.";

/// How long the new primary is waited for.
const DONE_TIME_MAX: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Failover {
    /// Where Patroni answers, at any of the hosts
    #[arg(long, value_name = "URL,URL", value_delimiter = ',', required = true)]
    patroni: Vec<String>,
    /// The server that becomes the primary [default: a standby that has all commits; with --quorum Patroni chooses]
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Say what would be done
    #[arg(long)]
    dry_run: bool,
}

/// What is asked of Patroni.
#[derive(Debug, PartialEq, Eq)]
struct Plan {
    leader: String,
    /// Patroni chooses if there is none.
    candidate: Option<String>,
    /// The primary does not run as it should, so Patroni ends it, if need be by force.
    is_forced: bool,
}

/// `answers`: whether PostgreSQL of a member answers now, which is asked for only if it matters.
fn plan(members: &[Member], to: Option<&str>, answers: impl Fn(&Member) -> bool) -> Result<Plan, Failure> {
    let Some(leader) = members.iter().find(|member| member.is_leader()) else {
        let said = "there is no primary: Patroni makes one as soon as a standby is sure to have all commits; start the servers that do not run";
        return Err(Failure::failed(said.to_owned()));
    };
    if let Some(name) = to.filter(|name| !members.iter().any(|member| member.name == *name)) {
        let names: Vec<&str> = members.iter().map(|member| member.name.as_str()).collect();
        return Err(Failure::usage(format!("there is no server {name:?}; there are {}", names.join(", "))));
    }
    if to == Some(leader.name.as_str()) {
        return Err(Failure::usage(format!("{} is the primary already", leader.name)));
    }
    let fits = |member: &&Member| member.is_synchronous() && member.runs();
    let may_lack = members.iter().any(Member::is_of_quorum);
    if may_lack && to.is_some() && !(leader.runs() && answers(leader)) {
        return Err(Failure::failed(format!(
            "{} does not answer, and a standby of a quorum may lack commits that others have: leave --to away, and Patroni chooses one that has \
             all. Nothing was done",
            leader.name
        )));
    }
    let candidate = match to {
        None => members.iter().filter(fits).min_by_key(|member| member.lag.unwrap_or(u64::MAX)),
        Some(name) => members.iter().filter(fits).find(|member| member.name == name),
    };
    let Some(candidate) = candidate else {
        let which = to.map_or_else(|| "no standby".to_owned(), |name| format!("{name} not"));
        let sure: Vec<&str> = members.iter().filter(fits).map(|member| member.name.as_str()).collect();
        let others =
            if sure.is_empty() { String::new() } else { format!("; --to {} would be sure", sure.join(" or ")) };
        return Err(Failure::failed(format!(
            "{which} is sure to have all commits that were answered, so some could be lost{others}. Nothing was done"
        )));
    };
    let candidate = Some(candidate.name.clone()).filter(|_| !may_lack || to.is_some());
    // Patroni forces it only for a candidate.
    let is_forced = candidate.is_some() && !leader.runs();
    Ok(Plan { leader: leader.name.clone(), candidate, is_forced })
}

fn show(members: &[Member]) {
    for Member { name, role, state, timeline, lag, .. } in members {
        let timeline = timeline.map_or_else(|| "-".to_owned(), |timeline| timeline.to_string());
        let lag = lag.map_or_else(String::new, |lag| format!("  lacks {lag} bytes"));
        println!("{name:<12} {role:<14} {state:<12} timeline {timeline}{lag}");
    }
}

pub(super) fn run(failover: &Failover) -> Result<(), Failure> {
    let password = std::env::var("MARGAY_PATRONI_PASSWORD").ok();
    let patroni = Patroni::new(&failover.patroni, password).map_err(Failure::usage)?;
    let members = patroni.members().map_err(Failure::refused)?;
    show(&members);
    let Plan { leader, candidate, is_forced } =
        plan(&members, failover.to.as_deref(), |member| patroni.answers(member))?;
    let path = if is_forced { "/failover" } else { "/switchover" };
    let who = candidate.as_deref().unwrap_or("a standby that Patroni chooses");
    println!("{who} becomes the primary in place of {leader} (Patroni: {})", &path[1..]);
    if failover.dry_run {
        println!("nothing was done");
        return Ok(());
    }
    let (status, said) = patroni.order(path, &switch(&leader, candidate.as_deref())).map_err(Failure::failed)?;
    match status {
        200 | 202 => println!("{}", said.trim()),
        401 => {
            return Err(Failure::usage(
                "Patroni wants a password: set MARGAY_PATRONI_PASSWORD (it is in margay.env)".to_owned(),
            ));
        }
        _ => return Err(Failure::failed(format!("Patroni refuses ({status}): {}", said.trim()))),
    }
    wait(&patroni, &leader, candidate.as_deref())
}

/// Until the candidate, or any but the primary before, is the primary.
fn wait(patroni: &Patroni, before: &str, candidate: Option<&str>) -> Result<(), Failure> {
    let clock = Env::real().clock;
    let begun = clock.monotonic();
    loop {
        // They answer late while they change over.
        let members = patroni.members().unwrap_or_default();
        let is_it = |name: &str| candidate.map_or(name != before, |candidate| name == candidate);
        if let Some(done) = members.iter().find(|member| is_it(&member.name) && member.is_leader() && member.runs()) {
            println!("{} is the primary", done.name);
            return Ok(());
        }
        if clock.monotonic().saturating_sub(begun) > DONE_TIME_MAX {
            show(&members);
            return Err(Failure::failed(format!(
                "{} is not the primary after {} s; see the log of its Patroni",
                candidate.unwrap_or("another one"),
                DONE_TIME_MAX.as_secs()
            )));
        }
        clock.sleep(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, role: &str, state: &str) -> Member {
        Member { name: name.to_owned(), role: role.to_owned(), state: state.to_owned(), ..Member::default() }
    }

    #[test]
    fn only_a_standby_that_has_all_commits_is_named() {
        let mut members = vec![
            member("a", "leader", "running"),
            member("b", "replica", "streaming"),
            member("c", "sync_standby", "streaming"),
        ];
        let forms = |is_forced| Plan { leader: "a".to_owned(), candidate: Some("c".to_owned()), is_forced };
        let plan = |members: &[Member], to| plan(members, to, |_| panic!("it is asked though it does not matter"));
        assert_eq!(plan(&members, None), Ok(forms(false)));
        assert_eq!(plan(&members, Some("c")), Ok(forms(false)));
        let refused = plan(&members, Some("b")).unwrap_err().message;
        assert!(refused.contains("--to c"), "{refused}");
        assert!(plan(&members, Some("x")).is_err() && plan(&members, Some("a")).is_err());
        members[0].state = "crashed".to_owned();
        assert_eq!(plan(&members, None), Ok(forms(true)));
        members[2].state = "stopped".to_owned();
        assert!(plan(&members, None).is_err());
        members.remove(0);
        assert!(plan(&members, None).unwrap_err().message.contains("no primary"));
    }

    #[test]
    fn of_a_quorum_patroni_chooses_unless_the_primary_hands_over() {
        let mut members = vec![
            member("a", "leader", "running"),
            member("b", "quorum_standby", "streaming"),
            member("c", "quorum_standby", "streaming"),
        ];
        let to =
            |name: Option<&str>| Plan { leader: "a".to_owned(), candidate: name.map(str::to_owned), is_forced: false };
        assert_eq!(plan(&members, None, |_| true), Ok(to(None)));
        assert_eq!(plan(&members, Some("b"), |leader| leader.name == "a"), Ok(to(Some("b"))));
        let hangs = plan(&members, Some("b"), |_| false).unwrap_err().message;
        assert!(hangs.contains("leave --to away"), "{hangs}");
        members[0].state = "crashed".to_owned();
        assert!(plan(&members, Some("b"), |_| true).is_err());
        assert_eq!(plan(&members, None, |_| false), Ok(to(None)), "Patroni still chooses");
        members.iter_mut().for_each(|member| member.state = "stopped".to_owned());
        assert!(plan(&members, None, |_| false).is_err());
    }
}
