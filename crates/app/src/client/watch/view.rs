//! The output of `watch`: permanent lines, and on a terminal also a few lines that are redrawn.
//!
//! Invariants
//! - Every change of a node's status or attempt is shown once.
//! - Without a terminal nothing is redrawn: there are only permanent lines.
//! - Every line starts with the last characters of the execution's id, to tell several watched executions apart.
//! - Only a process in the foreground of its terminal redraws lines.
//! - The redrawn part has a bounded number of lines, and is removed before other output.
//!
//! Not here: when to poll (`client::watch`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kernel::ids::ExecutionId;
use kernel::run::node::Status;
use serde_json::Value;
use server::wire::{ExecutionNode, QueueItem};

use crate::output::{self, StreamStyle, Tone, clean, tone_of_status};

/// The maximum number of running nodes that have their own line.
const MAX_LINES: usize = 12;
const TICK: Duration = Duration::from_millis(100);
/// Names are padded to this width at most.
const NAME_WIDTH: usize = 24;
/// How many of the last characters of an id are shown. They are random, while the first characters are the time.
const TAG: usize = 6;
/// How many characters of a message are shown.
const MESSAGE: usize = 300;

/// A node, and the number of its item in a loop.
type Key = (String, i32);

#[derive(Debug)]
pub(super) struct View {
    style: StreamStyle,
    tag: String,
    screen: Option<Screen>,
    seen: BTreeMap<Key, (Status, i32)>,
    /// The last message about the queue or the server.
    last_message: Option<String>,
}

impl View {
    pub(super) fn new(style: StreamStyle, id: ExecutionId) -> View {
        let id = id.to_string();
        let tag = id[id.len().saturating_sub(TAG)..].to_owned();
        let moves = style.terminal && is_foreground();
        let screen = moves.then(|| Screen::new(&tag)).filter(|screen| !screen.multi.is_hidden());
        View { style, tag, screen, seen: BTreeMap::new(), last_message: None }
    }

    /// A line that starts with the tag of the execution.
    pub(super) fn tagged(&self, text: &str) -> String {
        format!("{}  {text}", self.style.paint(Tone::Faint, &self.tag))
    }

    /// Why the execution failed. A failure that was already shown with its node is not repeated in full.
    pub(super) fn describe_failure(&self, error: &Value) -> String {
        let node = error.get("node").and_then(Value::as_str);
        let was_shown =
            |node: &&str| self.seen.iter().any(|((name, _), (status, _))| name == node && *status == Status::Failed);
        match node.filter(was_shown) {
            Some(node) => format!("node {} failed", clean(node)),
            None => output::format_failure(error),
        }
    }

    /// Whether a LOG node has completed since the last call of `nodes`.
    pub(super) fn wants_messages(&self, nodes: &[ExecutionNode]) -> bool {
        let is_new = |node: &ExecutionNode| self.seen.get(&key(node)).is_none_or(|(status, _)| *status != node.status);
        nodes.iter().any(|node| is_log(node) && node.status == Status::Completed && is_new(node))
    }

    /// Shows why the execution waits, and its position. Returns whether that changed.
    pub(super) fn queued(&mut self, item: &QueueItem) -> anyhow::Result<bool> {
        let Some(text) = waiting(item) else { return Ok(false) };
        let text = text.as_str();
        match &self.screen {
            Some(screen) => screen.head.set_message(text.to_owned()),
            None if self.last_message.as_deref() != Some(text) => output::print_note(self.tagged(text))?,
            None => {}
        }
        let has_changed = self.last_message.as_deref() != Some(text);
        self.last_message = Some(text.to_owned());
        Ok(has_changed)
    }

    /// Shows the nodes that changed. Returns whether there are any.
    pub(super) fn nodes(&mut self, nodes: &[ExecutionNode]) -> anyhow::Result<bool> {
        self.last_message = None;
        let width = nodes.iter().map(|node| node_name(node).chars().count()).max().unwrap_or(0).min(NAME_WIDTH);
        let changed = changes(&mut self.seen, nodes);
        // Redraw first: it removes the message about the queue.
        if let Some(screen) = &mut self.screen {
            screen.update(nodes, width);
        }
        for node in &changed {
            // On a terminal a running node has a redrawn line instead.
            if self.screen.is_none() || !matches!(node.status, Status::Pending | Status::Running) {
                self.print(&line(node, width, self.style))?;
            }
        }
        Ok(!changed.is_empty())
    }

    /// Shows that the server cannot be reached at the moment.
    pub(super) fn unreachable(&mut self, error: &impl Display) -> anyhow::Result<()> {
        let text = format!("{}; retrying", clean(&error.to_string()));
        if self.last_message.as_deref() != Some(text.as_str()) {
            self.print(&text)?;
            self.last_message = Some(text);
        }
        Ok(())
    }

    /// Removes the redrawn part.
    pub(super) fn close(&mut self) -> anyhow::Result<()> {
        if let Some(screen) = self.screen.take() {
            screen.multi.clear()?;
        }
        Ok(())
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        let text = self.tagged(text);
        match &self.screen {
            Some(screen) => Ok(screen.multi.println(text)?),
            None => output::print_note(text),
        }
    }
}

/// The redrawn part: a line for each running node, and a progress bar of ended nodes.
#[derive(Debug)]
struct Screen {
    tag: String,
    multi: MultiProgress,
    head: ProgressBar,
    running: BTreeMap<Key, ProgressBar>,
}

impl Screen {
    fn new(tag: &str) -> Screen {
        let multi = MultiProgress::with_draw_target(ProgressDrawTarget::stderr());
        let head = multi.add(ProgressBar::new_spinner().with_style(style(&format!("{tag}  {{spinner}} {{wide_msg}}"))));
        head.enable_steady_tick(TICK);
        Screen { tag: tag.to_owned(), multi, head, running: BTreeMap::new() }
    }

    fn update(&mut self, nodes: &[ExecutionNode], width: usize) {
        let open: Vec<&ExecutionNode> = nodes.iter().filter(|node| is_active(node)).collect();
        let (shown, hidden) = open.split_at(open.len().min(MAX_LINES));
        self.count(nodes, hidden.len());
        let (multi, head, tag) = (&self.multi, &self.head, &self.tag);
        self.running.retain(|key, bar| {
            let stays = shown.iter().any(|node| (node.node.as_str(), node.iteration) == (key.0.as_str(), key.1));
            if !stays {
                multi.remove(bar);
            }
            stays
        });
        for node in shown {
            let bar = self.running.entry(key(node)).or_insert_with(|| {
                let template = format!("{tag}  {{spinner}} {{prefix}} {{elapsed}} {{wide_msg}}");
                let bar = ProgressBar::new_spinner().with_style(style(&template));
                let bar = multi.insert_before(head, bar);
                bar.enable_steady_tick(TICK);
                bar
            });
            bar.set_prefix(format!("{:<width$}  {}", node_name(node), clean(&node.kind)));
            bar.set_message(node_detail(node));
        }
    }

    /// Draws the progress bar of ended nodes.
    fn count(&self, nodes: &[ExecutionNode], hidden: usize) {
        let settled = nodes.iter().filter(|node| node.status.is_settled()).count();
        self.head.set_message(if hidden == 0 { String::new() } else { format!("and {hidden} more running") });
        let template = format!("{}  [{{bar:30}}] {{pos}}/{{len}} nodes  {{elapsed}} {{wide_msg}}", self.tag);
        self.head.set_style(style(&template).progress_chars("=> "));
        self.head.set_length(nodes.len() as u64);
        self.head.set_position(settled as u64);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates in this file are valid")
}

/// Whether this process is in the foreground: a background job would draw over the output of others.
fn is_foreground() -> bool {
    nix::unistd::tcgetpgrp(io::stderr()).is_ok_and(|group| group == nix::unistd::getpgrp())
}

fn is_log(node: &ExecutionNode) -> bool {
    node.kind == "LOG"
}

/// Whether a node runs, or waits for its next attempt.
pub(in crate::client) fn is_active(node: &ExecutionNode) -> bool {
    matches!(node.status, Status::Running | Status::Retrying)
}

fn key(node: &ExecutionNode) -> Key {
    (node.node.clone(), node.iteration)
}

/// The name of a node, with the number of the item if it is in a loop.
pub(in crate::client) fn node_name(node: &ExecutionNode) -> String {
    let name = clean(&node.node);
    if node.iteration == 0 { name } else { format!("{name}[{}]", node.iteration) }
}

/// Details of a node: its message, the branch that it took, its failure, and what it waits for.
pub(in crate::client) fn node_detail(node: &ExecutionNode) -> String {
    let attempt = || (node.attempt > 1).then(|| format!("attempt {}", node.attempt));
    let label = node.label.as_ref().map(|label| format!("took {}", clean(label)));
    let error = node.error.as_ref().map(output::format_cause);
    let message = node.output.as_ref().filter(|_| is_log(node)).and_then(|output| output.get("message")?.as_str());
    let message = message.map(shorten);
    let until = node.next_at.map(output::format_time);
    let parts = match node.status {
        Status::Pending | Status::Skipped => [None, None, None],
        Status::Running => [attempt(), until.map(|at| format!("until {at}")), None],
        // The row has the error of the last attempt and the number of the next one.
        Status::Retrying => [Some(retrying(node.attempt, error, until)), None, None],
        Status::Completed => [message, label, attempt()],
        Status::Failed | Status::Canceled | Status::Unknown => [error, label, attempt()],
    };
    let kept = node.kept_from_execution_id.map(|_| "kept".to_owned());
    kept.into_iter().chain(parts.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

fn retrying(next: i32, error: Option<String>, at: Option<String>) -> String {
    let why = error.map(|error| format!("attempt {}: {error}; ", next - 1)).unwrap_or_default();
    let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
    format!("{why}attempt {next}{at}")
}

fn shorten(message: &str) -> String {
    let message = clean(message);
    match message.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

fn line(node: &ExecutionNode, width: usize, style: StreamStyle) -> String {
    let status = style.paint(tone_of_status(node.status.name()), &format!("{:<9}", node.status.name()));
    let has_ended = node.status.is_settled() && node.status != Status::Skipped;
    let took = node.duration_ms.filter(|_| has_ended).map(output::format_duration);
    let detail = Some(node_detail(node)).filter(|detail| !detail.is_empty());
    let rest: Vec<String> = [took, detail].into_iter().flatten().collect();
    let kind = style.paint(Tone::Faint, &clean(&node.kind));
    format!("{status}  {:<width$}  {kind}  {}", node_name(node), rest.join("  ")).trim_end().to_owned()
}

fn waiting(item: &QueueItem) -> Option<String> {
    let why = item.waiting.as_ref()?;
    let place = item.position.map(|position| format!(" (queue position: {})", output::format_count(position)));
    Some(format!("waiting: {}{}", clean(&why.message), place.unwrap_or_default()))
}

/// The nodes whose status or attempt changed, in the given order. A node that is pending from the start is not a
/// change.
fn changes<'n>(seen: &mut BTreeMap<Key, (Status, i32)>, nodes: &'n [ExecutionNode]) -> Vec<&'n ExecutionNode> {
    let mut changed = Vec::new();
    for node in nodes {
        let now = (node.status, node.attempt);
        let before = seen.insert(key(node), now);
        let has_changed = before.map_or(node.status != Status::Pending, |before| before != now);
        if has_changed {
            changed.push(node);
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::expect;
    use serde_json::json;

    fn node(name: &str, status: &str, more: Value) -> ExecutionNode {
        let mut node = json!({"node": name, "kind": "LOG", "iteration": 0, "status": status, "attempt": 1});
        let fields = node.as_object_mut().expect("an object");
        fields.extend(more.as_object().cloned().unwrap_or_default());
        serde_json::from_value(node).expect("a node")
    }

    fn lines(seen: &mut BTreeMap<Key, (Status, i32)>, nodes: &[ExecutionNode]) -> String {
        changes(seen, nodes).into_iter().map(|node| format!("{}\n", line(node, 6, StreamStyle::PLAIN))).collect()
    }

    #[test]
    fn each_change_is_one_line_once() {
        let mut seen = BTreeMap::new();
        let first = [node("fetch", "RUNNING", json!({})), node("notify", "PENDING", json!({"attempt": 0}))];
        let failure = json!({"type": "TIMEOUT", "message": "too\u{1b}[2J slow"});
        let second = [
            node("fetch", "RETRYING", json!({"attempt": 2, "error": failure, "nextAt": "2030-01-31T09:00:00Z"})),
            node("notify", "PENDING", json!({"attempt": 0})),
        ];
        let third = [node("fetch", "RUNNING", json!({"attempt": 2})), node("notify", "PENDING", json!({"attempt": 0}))];
        let fourth = [
            node("fetch", "COMPLETED", json!({"attempt": 2, "label": "true", "durationMs": 1234})),
            node("notify", "SKIPPED", json!({"attempt": 0, "durationMs": 0})),
            node("each", "FAILED", json!({"iteration": 3, "error": failure, "durationMs": 7})),
            node("say", "COMPLETED", json!({"durationMs": 1, "output": {"message": "Hello,\n\u{1b}[2J you"}})),
        ];
        let mut shown = String::new();
        for nodes in [&first[..], &first, &second, &third, &fourth, &fourth] {
            shown.push_str(&lines(&mut seen, nodes));
            shown.push_str("--\n");
        }
        expect![[r#"
            RUNNING    fetch   LOG
            --
            --
            RETRYING   fetch   LOG  attempt 1: TIMEOUT: too slow; attempt 2 at 2030-01-31T09:00:00Z
            --
            RUNNING    fetch   LOG  attempt 2
            --
            COMPLETED  fetch   LOG  1.2s  took true, attempt 2
            SKIPPED    notify  LOG
            FAILED     each[3]  LOG  7ms  TIMEOUT: too slow
            COMPLETED  say     LOG  1ms  Hello,  you
            --
            --
        "#]]
        .assert_eq(&shown);
    }

    #[test]
    fn a_failure_that_was_reported_with_its_node_is_not_reported_again() {
        let mut view = View::new(StreamStyle::PLAIN, "019a0000-0000-7000-8000-00000012ab34".parse().expect("an id"));
        let error = json!({"type": "TIMEOUT", "message": "too slow", "node": "fetch"});
        assert_eq!(view.describe_failure(&error), "node fetch: TIMEOUT: too slow");
        changes(&mut view.seen, &[node("fetch", "FAILED", json!({"error": error}))]);
        assert_eq!(view.tagged(&view.describe_failure(&error)), "12ab34  node fetch failed");
        assert_eq!(view.describe_failure(&json!({"type": "CRASH_LOOP", "message": "it died"})), "CRASH_LOOP: it died");
    }

    #[test]
    fn messages_are_asked_for_once() {
        let mut view = View::new(StreamStyle::PLAIN, "019a0000-0000-7000-8000-00000012ab34".parse().expect("an id"));
        let (open, done) = ([node("say", "RUNNING", json!({}))], [node("say", "COMPLETED", json!({}))]);
        assert!(!view.wants_messages(&open) && view.wants_messages(&done));
        changes(&mut view.seen, &done);
        assert!(!view.wants_messages(&done));
    }

    #[test]
    fn a_waiting_item_shows_its_position_in_the_queue() {
        let id = "019a0000-0000-7000-8000-000000000000";
        let mut item = json!({
            "queueId": id, "executionId": id, "workspaceId": id, "workflowDefinitionId": id, "status": "PENDING",
            "executionStatus": "PENDING", "position": 3, "priority": 3, "attempts": 0, "createdAt": "2030-01-31T09:00:00Z",
            "waiting": {"reason": "workspace_full", "running": 1, "limit": 1, "message": "the workspace is full"},
        });
        let read = |item: &Value| serde_json::from_value::<QueueItem>(item.clone()).expect("an item");
        let observed = waiting(&read(&item));
        assert_eq!(observed.as_deref(), Some("waiting: the workspace is full (queue position: 3)"));
        item["position"] = json!(1001);
        let observed = waiting(&read(&item));
        assert_eq!(observed.as_deref(), Some("waiting: the workspace is full (queue position: more than 1,000)"));
        item["waiting"] = Value::Null;
        assert_eq!(waiting(&read(&item)), None);
    }
}
