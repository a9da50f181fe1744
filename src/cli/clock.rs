//! `margay clock`: whether the running server trusts the machine's clock, and confirming that it is right.

use http::Method;

use super::reach::AdminArgs;
use crate::exit::Failure;

const EXAMPLES: &str = "Examples:
  margay clock
  margay clock confirm
  margay clock confirm --data /srv/margay --json

Look at `date` first: what a wrong clock makes due is gone for good. Exit code 3 when no server runs on the directory.";

#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    #[command(flatten)]
    admin: AdminArgs,
    /// Without it, show whether the clock is trusted; `confirm` confirms that the clock is right
    #[arg(value_parser = ["confirm"])]
    word: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args) -> Result<(), Failure> {
    let (settings, reach) = args.admin.reach()?;
    let (method, path) = if args.word.is_some() { (Method::POST, "/clock/confirm") } else { (Method::GET, "/clock") };
    let answer = super::runtime(1)?.block_on(reach.ask(&settings, method, path, None))?;
    let clock = answer.ok_or_else(|| Failure::no_server(&settings.data))?;
    if args.json {
        println!("{clock:#}");
    } else {
        super::status::show("", &clock);
    }
    Ok(())
}
