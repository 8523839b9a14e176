//! The list of commands in `forebay --help`, in groups.
//!
//! Invariants
//! - Every command that is not hidden is in exactly one group.
//!
//! Not here: what a command does (the module of that command), its options (clap).

use clap::Command;

/// The groups and their commands, in the order in which they are shown.
const GROUPS: [(&str, &[&str]); 8] = [
    ("Start here", &["dev", "apply", "run", "watch"]),
    ("Workflows", &["workflow", "validate", "diff", "graph", "eval", "schema"]),
    ("Executions", &["ls", "get", "logs", "tree", "queue", "rerun", "cancel", "terminate"]),
    ("What starts executions", &["schedule", "trigger", "event", "binding", "job"]),
    ("Waits, tasks and webhooks", &["wait", "task", "webhook"]),
    ("Operate", &["serve", "worker", "migrate", "config", "top", "activity"]),
    ("Access", &["workspace", "key", "secret", "root-key"]),
    ("This machine", &["profile", "completion"]),
];

/// Replaces clap's flat list of commands by the groups.
pub(crate) fn grouped(command: Command) -> Command {
    let groups = render(&command);
    command.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{groups}Options:\n{{options}}{{after-help}}"
    ))
}

fn render(command: &Command) -> String {
    let width = GROUPS.iter().flat_map(|(_, names)| names.iter()).map(|name| name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text.push_str(&format!("{heading}:\n"));
        for name in names {
            let about = command.find_subcommand(name).and_then(Command::get_about).map(ToString::to_string);
            text.push_str(&format!("  {name:<width$}  {}\n", about.unwrap_or_default()));
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_in_exactly_one_group() {
        let command = crate::Cli::command();
        let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
        let mut commands: Vec<&str> = shown.map(Command::get_name).collect();
        let mut listed: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        commands.sort_unstable();
        listed.sort_unstable();
        assert_eq!(commands, listed);
    }

    #[test]
    fn every_line_fits_a_terminal() {
        for line in render(&crate::Cli::command()).lines() {
            assert!(line.chars().count() <= 100 && !line.contains(['{', '}']), "{line}");
        }
    }
}
