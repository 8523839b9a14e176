//! A connection that sends prepared requests, one after the other.
//!
//! The measured service shares the machine with its clients. A full HTTP client costs about as much processor time per
//! request as the service, so it would be measured too.
//!
//! Not here: requests whose cost does not matter (`served`).

use anyhow::{Context, Result, ensure};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// One HTTP/1.1 connection that stays open.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Connection> {
        let stream = TcpStream::connect(address).await.context("connect to forebay")?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, answer: Vec::new() })
    }

    /// Sends a whole request and reads its whole answer. Returns the status.
    pub(crate) async fn send(&mut self, request: &[u8]) -> Result<u16> {
        self.stream.write_all(request).await?;
        self.answer.clear();
        loop {
            ensure!(self.stream.read_buf(&mut self.answer).await? > 0, "forebay closed a connection");
            if let Some((status, length)) = head(&self.answer)?
                && self.answer.len() >= length
            {
                return Ok(status);
            }
        }
    }
}

/// The status of an answer, and the length of its head and body. None while the head is not complete.
fn head(answer: &[u8]) -> Result<Option<(u16, usize)>> {
    let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&answer[..end]).context("an answer's head is not text")?;
    let mut lines = text.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).context("an answer has no status")?;
    let length = lines.find_map(|line| line.strip_prefix("content-length: ")).context("an answer has no length")?;
    Ok(Some((status.parse()?, end + 4 + length.parse::<usize>()?)))
}

#[cfg(test)]
mod tests {
    use super::head;

    #[test]
    fn an_answer_is_complete_with_its_head_and_body() {
        let answer = b"HTTP/1.1 202 Accepted\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(head(answer).expect("a head"), Some((202, answer.len())));
        assert_eq!(head(&answer[..40]).expect("no error"), None);
        assert!(head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
