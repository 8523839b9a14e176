//! The part of PostgreSQL's protocol that a saboteur needs: where messages end, which statement is executed, the form
//! of an error.
//!
//! Invariants
//! - If the stream cannot be parsed, the connection ends, which the service must tolerate too.

use std::collections::HashMap;

use anyhow::{Context, bail};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The maximum length of a message.
const MOST_BYTES: usize = 256 << 20;

/// One message of either side: its type, and all of its bytes.
#[derive(Debug)]
pub(super) struct Message {
    pub(super) tag: u8,
    pub(super) bytes: Vec<u8>,
}

/// A group of messages that the server answers together: everything up to a Sync, or a simple query.
#[derive(Debug, Default)]
pub(super) struct Group {
    pub(super) bytes: Vec<u8>,
    /// The text of the statement that it executes, if it executes one.
    pub(super) executes: Option<String>,
    /// True if the server answers it with ReadyForQuery.
    pub(super) answered: bool,
}

/// The statements that a connection prepared, by their names.
#[derive(Debug, Default)]
pub(super) struct Statements(HashMap<Vec<u8>, String>);

impl Message {
    /// The next message; none at the end of the stream.
    pub(super) async fn read(from: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Option<Message>> {
        let Ok(tag) = from.read_u8().await else { return Ok(None) };
        let length = from.read_u32().await.context("read a length")?;
        let body = usize::try_from(length)?.checked_sub(4).context("a length below its own")?;
        let mut bytes = Vec::with_capacity(5);
        bytes.push(tag);
        bytes.extend(length.to_be_bytes());
        read_more(from, &mut bytes, body).await?;
        Ok(Some(Message { tag, bytes }))
    }

    /// The first message of a client, which has no type.
    pub(super) async fn read_first(from: &mut (impl AsyncRead + Unpin)) -> anyhow::Result<Vec<u8>> {
        let length = from.read_u32().await.context("read the first length")?;
        let mut bytes = length.to_be_bytes().to_vec();
        let body = usize::try_from(length)?.checked_sub(4).context("a length below its own")?;
        read_more(from, &mut bytes, body).await?;
        Ok(bytes)
    }

    /// A ReadyForQuery: the server has answered all of a group.
    pub(super) fn is_ready(&self) -> bool {
        self.tag == b'Z'
    }

    fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.bytes[5..].split(|byte| *byte == 0)
    }
}

async fn read_more(from: &mut (impl AsyncRead + Unpin), into: &mut Vec<u8>, length: usize) -> anyhow::Result<()> {
    if length > MOST_BYTES {
        bail!("a message of {length} bytes");
    }
    let start = into.len();
    into.resize(start + length, 0);
    from.read_exact(&mut into[start..]).await.context("read a message")?;
    Ok(())
}

impl Statements {
    /// Adds the next message of a client to a group. True if the group is complete.
    pub(super) fn gather(&mut self, group: &mut Group, message: Message) -> bool {
        match message.tag {
            b'P' => {
                let mut texts = message.texts();
                if let (Some(name), Some(sql)) = (texts.next(), texts.next()) {
                    self.0.insert(name.to_vec(), String::from_utf8_lossy(sql).into_owned());
                }
            }
            b'B' => group.executes = message.texts().nth(1).and_then(|name| self.0.get(name)).cloned(),
            b'Q' => group.executes = message.texts().next().map(|sql| String::from_utf8_lossy(sql).into_owned()),
            _ => {}
        }
        group.answered = matches!(message.tag, b'S' | b'Q');
        let whole = group.answered || !matches!(message.tag, b'P' | b'B' | b'D' | b'E' | b'C' | b'H');
        group.bytes.extend(message.bytes);
        whole
    }
}

/// An error message of the server. With `fatal` it ends the connection.
pub(super) fn error(code: &str, message: &str, fatal: bool) -> Vec<u8> {
    let severity = if fatal { "FATAL" } else { "ERROR" };
    let mut body = Vec::new();
    for (field, text) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', message)] {
        body.push(field);
        body.extend(text.as_bytes());
        body.push(0);
    }
    body.push(0);
    let mut bytes = vec![b'E'];
    bytes.extend(u32::try_from(body.len() + 4).unwrap_or(u32::MAX).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// What follows an error that does not end the connection.
pub(super) const READY: [u8; 6] = [b'Z', 0, 0, 0, 5, b'I'];

#[cfg(test)]
mod tests {
    use super::*;

    fn message(tag: u8, body: &[u8]) -> Message {
        let mut bytes = vec![tag];
        bytes.extend(u32::try_from(body.len() + 4).expect("short").to_be_bytes());
        bytes.extend(body);
        Message { tag, bytes }
    }

    #[test]
    fn a_group_names_the_statement_that_was_prepared_before() {
        let mut statements = Statements::default();
        let mut group = Group::default();
        assert!(!statements.gather(&mut group, message(b'P', b"s1\0SELECT 1\0\0\0")));
        assert!(statements.gather(&mut group, message(b'S', b"")));
        assert!(group.executes.is_none() && group.answered, "it only prepares");
        let mut group = Group::default();
        assert!(!statements.gather(&mut group, message(b'B', b"\0s1\0\0\0")));
        assert!(!statements.gather(&mut group, message(b'E', b"\0\0\0\0\0")));
        assert!(statements.gather(&mut group, message(b'S', b"")));
        assert_eq!(group.executes.as_deref(), Some("SELECT 1"));
    }
}
