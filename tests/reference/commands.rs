//! docs/reference/commands.md: every command with its options and examples.

use std::fmt::Write;

use clap::{Arg, Command};

use super::{WRITTEN, cell, expect_page};

/// The commands below `command`, each with its full name, in the order of `--help`.
fn all(command: &Command) -> Vec<(String, Command)> {
    let mut found = Vec::new();
    add(command.get_name(), command, &mut found);
    found
}

fn add(name: &str, command: &Command, found: &mut Vec<(String, Command)>) {
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help") {
        let name = format!("{name} {}", sub.get_name());
        found.push((name.clone(), sub.clone()));
        add(&name, sub, found);
    }
}

/// `--data <DIR>`, `-h, --help` or `[PATH]...` as `--help` shows it.
fn shown(arg: &Arg) -> String {
    let values: Vec<String> =
        arg.get_value_names().unwrap_or_default().iter().map(|name| format!("<{name}>")).collect();
    let values = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
    let short = arg.get_short().map(|short| format!("-{short}"));
    let long = arg.get_long().map(|long| format!("--{long}"));
    let names: Vec<String> = [short, long].into_iter().flatten().collect();
    format!("{} {values}", names.join(", ")).trim().to_owned()
}

/// What an option does, with its default and the values that it takes.
fn about_option(arg: &Arg) -> String {
    let help = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let defaults: Vec<_> = arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
    let values = arg.get_possible_values();
    let values: Vec<&str> = values.iter().filter(|value| !value.is_hide_set()).map(|value| value.get_name()).collect();
    let mut text = help;
    if !defaults.is_empty() && arg.get_action().takes_values() && !arg.is_hide_default_value_set() {
        write!(text, " [default: {}]", defaults.join(" ")).unwrap();
    }
    if !values.is_empty() && arg.get_action().takes_values() && !arg.is_hide_possible_values_set() {
        write!(text, " [possible values: {}]", values.join(", ")).unwrap();
    }
    cell(&text)
}

fn section(name: &str, command: &Command, out: &mut String) {
    let level = "#".repeat(name.split(' ').count().min(3));
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    writeln!(out, "\n{level} {name}\n\n{}.", about.trim_end_matches('.')).unwrap();
    let usage = command.clone().render_usage().to_string();
    writeln!(out, "\n```text\n{}\n```", usage.trim_start_matches("Usage: ")).unwrap();
    let args: Vec<&Arg> = command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help").collect();
    if !args.is_empty() {
        writeln!(out, "\n| option | what it does |\n| --- | --- |").unwrap();
        for arg in args {
            writeln!(out, "| `{}` | {} |", shown(arg), about_option(arg)).unwrap();
        }
    }
    if let Some(after) = command.get_after_long_help().or_else(|| command.get_after_help()) {
        writeln!(out, "\n```text\n{}\n```", after.to_string().trim_end()).unwrap();
    }
}

fn page() -> String {
    let mut command = margay::cli::command();
    command.build();
    let commands = all(&command);
    let mut out = format!(
        "# Commands and options\n\n{WRITTEN} `margay COMMAND --help` shows the same, and `man margay-COMMAND` where a package is installed.\n\n\
         Results go to stdout, everything else to stderr; `--json`, where a command has it, prints for programs.\n"
    );
    writeln!(out, "\n| command | what it does |\n| --- | --- |").unwrap();
    for (name, command) in commands.iter().filter(|(name, _)| name.split(' ').count() == 2) {
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        writeln!(out, "| [`{name}`](#{}) | {} |", name.replace(' ', "-"), cell(&about)).unwrap();
    }
    let codes = command.get_after_help().unwrap().to_string();
    writeln!(out, "\n```text\n{}\n```", codes.trim_end()).unwrap();
    for (name, command) in &commands {
        section(name, command, &mut out);
    }
    out
}

#[test]
fn the_commands_are_those_of_the_program() {
    let page = page();
    for part in
        ["\n## margay serve\n", "\n### margay bucket quota\n", "| `--address <HOST:PORT>` |", "margay bucket quota "]
    {
        assert!(page.contains(part), "{part:?} is missing");
    }
    expect_page("commands.md", &page);
}
