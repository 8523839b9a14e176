//! A receiver of webhooks. It keeps every message with its headers, answers as the test sets, and can delay its answer.

use parking_lot::Mutex;
use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::process::Stdio;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

use crate::support::receiver::apart;
use crate::support::until;
use crate::tidy::repository::read;

/// A message as it came.
#[derive(Clone, Debug)]
pub(super) struct Message {
    pub(super) headers: BTreeMap<String, String>,
    pub(super) body: String,
}

impl Message {
    pub(super) fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).expect("JSON")
    }

    /// What the page's own code says of it: the message, or why not.
    pub(super) async fn verified(&self, secret: &str) -> Result<Value, String> {
        let page = read("docs/reference/webhooks.md");
        let code = page.split("```python\n").nth(1).and_then(|rest| rest.split("```").next()).expect("code");
        let run = "import sys\ngiven = json.load(sys.stdin)\nprint(json.dumps(verify(given['secret'], given['headers'], given['body'].encode())))";
        let given = json!({ "secret": secret, "headers": self.headers, "body": self.body });
        let out = python(&format!("{code}\n{run}"), &given.to_string()).await?;
        Ok(serde_json::from_str(&out).expect("JSON"))
    }
}

/// Runs Python; what it printed, or the last line of what went wrong.
pub(super) async fn python(code: &str, stdin: &str) -> Result<String, String> {
    let mut command = tokio::process::Command::new("python3");
    command.args(["-c", code]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("python3 is there");
    let mut input = child.stdin.take().expect("stdin is piped");
    input.write_all(stdin.as_bytes()).await.expect("it reads");
    drop(input);
    let out = child.wait_with_output().await.expect("it ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text").trim().to_owned();
    match out.status.success() {
        true => Ok(text(out.stdout)),
        false => Err(text(out.stderr).lines().last().unwrap_or_default().to_owned()),
    }
}

type Answer = (u16, Vec<(&'static str, String)>, String);

#[derive(Clone)]
pub(super) struct Inbox {
    pub(super) address: SocketAddr,
    messages: Arc<Mutex<Vec<Message>>>,
    answers: Arc<Mutex<VecDeque<Answer>>>,
    held: watch::Sender<bool>,
}

impl Inbox {
    pub(super) async fn start() -> Inbox {
        let listener = apart().await;
        let address = listener.local_addr().expect("an address");
        let inbox =
            Inbox { address, messages: Arc::default(), answers: Arc::default(), held: watch::Sender::new(false) };
        let router = Router::new().route("/{*path}", any(take)).with_state(inbox.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        inbox
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// The next messages are answered so, in order; the others with 200.
    pub(super) fn answer(&self, status: u16, headers: &[(&'static str, &str)]) {
        self.answer_with(status, headers, "taken".to_owned());
    }

    /// The same, with this body.
    pub(super) fn answer_with(&self, status: u16, headers: &[(&'static str, &str)], body: String) {
        let headers = headers.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        self.answers.lock().push_back((status, headers, body));
    }

    /// Keeps senders waiting for their answers, or lets them go.
    pub(super) fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }

    pub(super) fn messages(&self) -> Vec<Message> {
        self.messages.lock().clone()
    }

    pub(super) async fn until(&self, count: usize) -> Vec<Message> {
        until(&format!("{count} messages came"), async || {
            let messages = self.messages();
            (messages.len() >= count).then_some(messages)
        })
        .await
    }
}

async fn take(State(inbox): State<Inbox>, headers: HeaderMap, body: Bytes) -> Response {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    let headers = headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
    let message = Message { headers, body: String::from_utf8_lossy(&body).into_owned() };
    inbox.messages.lock().push(message);
    let mut held = inbox.held.subscribe();
    let _let_go = held.wait_for(|held| !held).await.is_ok();
    let answer = inbox.answers.lock().pop_front();
    let (status, headers, body) = answer.unwrap_or((200, Vec::new(), "taken".to_owned()));
    let mut response = (StatusCode::from_u16(status).expect("a status"), body).into_response();
    response.headers_mut().extend(
        headers.into_iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().expect("a value"))),
    );
    response
}
