//! What a watcher sees: lines that stay, and on a terminal a few that move.
//!
//! Invariants
//! - Every change of a node's status or attempt is shown once.
//! - Without a terminal there are only lines, one after the other.
//! - Every line begins with the end of the execution's id: several may be watched in one terminal.
//! - Only a process in the foreground of its terminal has a part that moves.
//! - The moving part has a bounded number of lines and is gone before anything else is said.
//!
//! Not here: when to look (`client::watch`).

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use kernel::ids::ExecutionId;
use kernel::run::node::Status;
use serde_json::Value;
use server::wire::{Node, QueueItem};

use crate::output::{self, Look, Tone, clean, tone};

/// The most running nodes that have a line of their own.
const MAX_LINES: usize = 12;
const TICK: Duration = Duration::from_millis(100);
/// Names are padded to this width at most.
const NAME_WIDTH: usize = 24;
/// How much of an id tells executions apart: its end is random, its beginning is the time.
const TAG: usize = 6;
/// How much of a message is shown.
const MESSAGE: usize = 300;

/// A node and its place in a list that it was run for.
type Key = (String, i32);

#[derive(Debug)]
pub(super) struct View {
    look: Look,
    tag: String,
    screen: Option<Screen>,
    seen: BTreeMap<Key, (Status, i32)>,
    /// The last thing said about the queue or the server.
    said: Option<String>,
}

impl View {
    pub(super) fn new(look: Look, id: ExecutionId) -> View {
        let id = id.to_string();
        let tag = id[id.len().saturating_sub(TAG)..].to_owned();
        let moves = look.terminal && is_foreground();
        let screen = moves.then(|| Screen::new(&tag)).filter(|screen| !screen.multi.is_hidden());
        View { look, tag, screen, seen: BTreeMap::new(), said: None }
    }

    /// A line that says which execution it is about.
    pub(super) fn tagged(&self, text: &str) -> String {
        format!("{}  {text}", self.look.paint(Tone::Faint, &self.tag))
    }

    /// Why it failed; the whole of it only if it was not told with its node.
    pub(super) fn why(&self, error: &Value) -> String {
        let node = error.get("node").and_then(Value::as_str);
        let is_told =
            |node: &&str| self.seen.iter().any(|((name, _), (status, _))| name == node && *status == Status::Failed);
        match node.filter(is_told) {
            Some(node) => format!("node {} failed", clean(node)),
            None => output::failure(error),
        }
    }

    /// Is there a message among what is new?
    pub(super) fn wants_messages(&self, nodes: &[Node]) -> bool {
        let is_new = |node: &Node| self.seen.get(&key(node)).is_none_or(|(status, _)| *status != node.status);
        nodes.iter().any(|node| is_log(node) && node.status == Status::Completed && is_new(node))
    }

    /// The execution has not begun: why, and its place in line. Is that news?
    pub(super) fn queued(&mut self, item: &QueueItem) -> anyhow::Result<bool> {
        let Some(text) = waiting(item) else { return Ok(false) };
        let text = text.as_str();
        match &self.screen {
            Some(screen) => screen.head.set_message(text.to_owned()),
            None if self.said.as_deref() != Some(text) => output::note(self.tagged(text))?,
            None => {}
        }
        let is_news = self.said.as_deref() != Some(text);
        self.said = Some(text.to_owned());
        Ok(is_news)
    }

    /// The nodes as they are now. Has any changed?
    pub(super) fn nodes(&mut self, nodes: &[Node]) -> anyhow::Result<bool> {
        self.said = None;
        let width = nodes.iter().map(|node| name(node).chars().count()).max().unwrap_or(0).min(NAME_WIDTH);
        let changed = changes(&mut self.seen, nodes);
        // First, so that no line is drawn above a wait that is over.
        if let Some(screen) = &mut self.screen {
            screen.update(nodes, width);
        }
        for node in &changed {
            // On a terminal a running node has a line that moves.
            if self.screen.is_none() || !matches!(node.status, Status::Pending | Status::Running) {
                self.say(&line(node, width, self.look))?;
            }
        }
        Ok(!changed.is_empty())
    }

    /// The server does not answer for the moment.
    pub(super) fn trouble(&mut self, error: &impl Display) -> anyhow::Result<()> {
        let text = format!("{}; trying again", clean(&error.to_string()));
        if self.said.as_deref() != Some(text.as_str()) {
            self.say(&text)?;
            self.said = Some(text);
        }
        Ok(())
    }

    /// Takes the moving part away.
    pub(super) fn close(&mut self) -> anyhow::Result<()> {
        if let Some(screen) = self.screen.take() {
            screen.multi.clear()?;
        }
        Ok(())
    }

    fn say(&self, text: &str) -> anyhow::Result<()> {
        let text = self.tagged(text);
        match &self.screen {
            Some(screen) => Ok(screen.multi.println(text)?),
            None => output::note(text),
        }
    }
}

/// The moving part: a bar of settled nodes, above it a line for each running one.
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

    fn update(&mut self, nodes: &[Node], width: usize) {
        let open: Vec<&Node> = nodes.iter().filter(|node| is_moving(node)).collect();
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
            bar.set_prefix(format!("{:<width$}  {}", name(node), clean(&node.kind)));
            bar.set_message(detail(node));
        }
    }

    /// Draws the bar of settled nodes.
    fn count(&self, nodes: &[Node], hidden: usize) {
        let settled = nodes.iter().filter(|node| node.status.is_settled()).count();
        self.head.set_message(if hidden == 0 { String::new() } else { format!("and {hidden} more running") });
        let template = format!("{}  [{{bar:30}}] {{pos}}/{{len}} nodes  {{elapsed}} {{wide_msg}}", self.tag);
        self.head.set_style(style(&template).progress_chars("=> "));
        self.head.set_length(nodes.len() as u64);
        self.head.set_position(settled as u64);
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates in this file are good")
}

/// Whether this terminal is ours to draw on: a job in the background would draw over the shell's other jobs.
fn is_foreground() -> bool {
    nix::unistd::tcgetpgrp(io::stderr()).is_ok_and(|group| group == nix::unistd::getpgrp())
}

fn is_log(node: &Node) -> bool {
    node.kind == "LOG"
}

/// Is it at work, or about to be again?
pub(in crate::client) fn is_moving(node: &Node) -> bool {
    matches!(node.status, Status::Running | Status::Retrying)
}

fn key(node: &Node) -> Key {
    (node.node.clone(), node.iteration)
}

/// A node's name, with its place in a list if it has one.
pub(in crate::client) fn name(node: &Node) -> String {
    let name = clean(&node.node);
    if node.iteration == 0 { name } else { format!("{name}[{}]", node.iteration) }
}

/// What else there is to know of a node: what it said, its branch, its failure, what it waits for.
pub(in crate::client) fn detail(node: &Node) -> String {
    let attempt = || (node.attempt > 1).then(|| format!("attempt {}", node.attempt));
    let label = node.label.as_ref().map(|label| format!("took {}", clean(label)));
    let error = node.error.as_ref().map(output::cause);
    let message = node.output.as_ref().filter(|_| is_log(node)).and_then(|output| output.get("message")?.as_str());
    let message = message.map(shorten);
    let until = node.next_at.map(output::time);
    let parts = match node.status {
        Status::Pending | Status::Skipped => [None, None, None],
        Status::Running => [attempt(), until.map(|at| format!("until {at}")), None],
        Status::Retrying => [attempt(), error, until.map(|at| format!("again at {at}"))],
        Status::Completed => [message, label, attempt()],
        Status::Failed | Status::Canceled | Status::Unknown => [error, label, attempt()],
    };
    let kept = node.kept_from.map(|_| "kept".to_owned());
    kept.into_iter().chain(parts.into_iter().flatten()).collect::<Vec<_>>().join(", ")
}

fn shorten(message: &str) -> String {
    let message = clean(message);
    match message.char_indices().nth(MESSAGE) {
        Some((end, _)) => format!("{}…", &message[..end]),
        None => message,
    }
}

fn line(node: &Node, width: usize, look: Look) -> String {
    let status = look.paint(tone(node.status.name()), &format!("{:<9}", node.status.name()));
    let has_ended = node.status.is_settled() && node.status != Status::Skipped;
    let took = node.duration_ms.filter(|_| has_ended).map(output::took);
    let detail = Some(detail(node)).filter(|detail| !detail.is_empty());
    let rest: Vec<String> = [took, detail].into_iter().flatten().collect();
    let kind = look.paint(Tone::Faint, &clean(&node.kind));
    format!("{status}  {:<width$}  {kind}  {}", name(node), rest.join("  ")).trim_end().to_owned()
}

fn waiting(item: &QueueItem) -> Option<String> {
    let why = item.waiting.as_ref()?;
    let place = item.position.map(|position| format!(" (place in line: {})", output::count(position)));
    Some(format!("waiting: {}{}", clean(&why.message), place.unwrap_or_default()))
}

/// The nodes that are not as they were, in the order given; one that waits from the start is no news.
fn changes<'n>(seen: &mut BTreeMap<Key, (Status, i32)>, nodes: &'n [Node]) -> Vec<&'n Node> {
    let mut changed = Vec::new();
    for node in nodes {
        let now = (node.status, node.attempt);
        let before = seen.insert(key(node), now);
        let is_news = before.map_or(node.status != Status::Pending, |before| before != now);
        if is_news {
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

    fn node(name: &str, status: &str, more: Value) -> Node {
        let mut node = json!({"node": name, "kind": "LOG", "iteration": 0, "status": status, "attempt": 1});
        let fields = node.as_object_mut().expect("an object");
        fields.extend(more.as_object().cloned().unwrap_or_default());
        serde_json::from_value(node).expect("a node")
    }

    fn lines(seen: &mut BTreeMap<Key, (Status, i32)>, nodes: &[Node]) -> String {
        changes(seen, nodes).into_iter().map(|node| format!("{}\n", line(node, 6, Look::PLAIN))).collect()
    }

    #[test]
    fn each_change_is_one_line_once() {
        let mut seen = BTreeMap::new();
        let first = [node("fetch", "RUNNING", json!({})), node("notify", "PENDING", json!({"attempt": 0}))];
        let failure = json!({"type": "TIMEOUT", "message": "too\u{1b}[2J slow"});
        let second = [
            node("fetch", "RETRYING", json!({"error": failure, "nextAt": "2030-01-31T09:00:00Z"})),
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
            RETRYING   fetch   LOG  TIMEOUT: too slow, again at 2030-01-31T09:00:00Z
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
    fn a_failure_that_was_told_with_its_node_is_not_told_again() {
        let mut view = View::new(Look::PLAIN, "019a0000-0000-7000-8000-00000012ab34".parse().expect("an id"));
        let error = json!({"type": "TIMEOUT", "message": "too slow", "node": "fetch"});
        assert_eq!(view.why(&error), "node fetch: TIMEOUT: too slow");
        changes(&mut view.seen, &[node("fetch", "FAILED", json!({"error": error}))]);
        assert_eq!(view.tagged(&view.why(&error)), "12ab34  node fetch failed");
        assert_eq!(view.why(&json!({"type": "CRASH_LOOP", "message": "it died"})), "CRASH_LOOP: it died");
    }

    #[test]
    fn messages_are_asked_for_once() {
        let mut view = View::new(Look::PLAIN, "019a0000-0000-7000-8000-00000012ab34".parse().expect("an id"));
        let (open, done) = ([node("say", "RUNNING", json!({}))], [node("say", "COMPLETED", json!({}))]);
        assert!(!view.wants_messages(&open) && view.wants_messages(&done));
        changes(&mut view.seen, &done);
        assert!(!view.wants_messages(&done));
    }

    #[test]
    fn waiting_is_told_with_the_place_in_line() {
        let id = "019a0000-0000-7000-8000-000000000000";
        let mut item = json!({
            "queueId": id, "executionId": id, "workspaceId": id, "workflowDefinitionId": id, "status": "PENDING",
            "executionStatus": "PENDING", "position": 3, "priority": 3, "attempts": 0, "createdAt": "2030-01-31T09:00:00Z",
            "waiting": {"reason": "workspace_full", "running": 1, "limit": 1, "message": "the workspace is full"},
        });
        let read = |item: &Value| serde_json::from_value::<QueueItem>(item.clone()).expect("an item");
        let told = waiting(&read(&item));
        assert_eq!(told.as_deref(), Some("waiting: the workspace is full (place in line: 3)"));
        item["position"] = json!(1001);
        let told = waiting(&read(&item));
        assert_eq!(told.as_deref(), Some("waiting: the workspace is full (place in line: more than 1,000)"));
        item["waiting"] = Value::Null;
        assert_eq!(waiting(&read(&item)), None);
    }
}
