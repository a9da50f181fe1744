//! `margay completions` and `margay man-pages`: what a package ships beside the program, made from its own command line.
//!
//! Why:        written by the program itself they cannot differ from it, and whoever installs only the binary has them too.
//! Not here:   where a package puts them (tools/dist.sh).

use std::path::PathBuf;

use clap_complete::Shell;
use clap_mangen::Man;
use margay_env::{Env, files, output};

use crate::exit::Failure;

const COMPLETIONS_EXAMPLES: &str = "Examples:
  margay completions bash > /etc/bash_completion.d/margay
  margay completions zsh > ~/.zfunc/_margay
  margay completions fish > ~/.config/fish/completions/margay.fish

Packages install them already.";

const MAN_EXAMPLES: &str = "Examples:
  margay man-pages /usr/local/share/man/man1
  margay man-pages . && man ./margay-serve.1

One page for the program and one for each command; packages install them already.";

#[derive(Debug, clap::Args)]
#[command(after_help = COMPLETIONS_EXAMPLES)]
pub(super) struct Completions {
    /// The shell
    shell: Shell,
}

#[derive(Debug, clap::Args)]
#[command(after_help = MAN_EXAMPLES)]
pub(super) struct ManPages {
    /// Where to write them; it is made if it is missing, and pages in it are replaced
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

pub(super) fn run_completions(args: &Completions, mut command: clap::Command) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "margay", &mut script);
    let written = output::exactly(&script);
    written.map_err(|error| Failure::failed(format!("the completions cannot be written: {error}")))
}

pub(super) fn run_man_pages(args: &ManPages, command: clap::Command) -> Result<(), Failure> {
    let env = Env::real();
    std::fs::create_dir_all(&args.directory).map_err(|error| {
        Failure::failed(format!("{} cannot be made: {error}; {}", args.directory.display(), files::remedy(&error)))
    })?;
    for (name, page) in pages(command)? {
        let path = args.directory.join(name);
        files::replace_content(&env, &path, &page).map_err(|error| {
            Failure::failed(format!("{} cannot be written: {error}; {}", path.display(), files::remedy(&error)))
        })?;
    }
    Ok(())
}

/// The name and text of each page: the program, its commands, and the commands of those (`margay-bucket-quota.1`).
fn pages(mut command: clap::Command) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    command = command.disable_help_subcommand(true);
    command.build();
    let mut found = Vec::new();
    let mut waiting = vec![("margay".to_owned(), command)];
    while let Some((name, command)) = waiting.pop() {
        for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
            waiting.push((format!("{name}-{}", sub.get_name()), sub.clone()));
        }
        let mut page = Vec::new();
        let shown = command.display_name(name.clone());
        Man::new(shown)
            .render(&mut page)
            .map_err(|error| Failure::failed(format!("the page of {name} cannot be made: {error}")))?;
        found.push((format!("{name}.1"), page));
    }
    found.sort();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_command_has_a_page_with_its_flags() {
        let pages = pages(super::super::Cli::command()).unwrap();
        let of = |name: &str| {
            let found = pages.iter().find(|(page, _)| page == name);
            String::from_utf8(found.unwrap_or_else(|| panic!("no page {name}")).1.clone()).unwrap()
        };
        assert!(of("margay.1").contains("Run a server on a data directory"));
        assert!(of("margay-serve.1").contains("\\-\\-address"), "{}", of("margay-serve.1"));
        assert!(of("margay-bucket-quota.1").contains("\\-\\-bytes"));
        assert!(pages.iter().all(|(name, _)| !name.contains("help")), "help is no command of its own");
    }
}
