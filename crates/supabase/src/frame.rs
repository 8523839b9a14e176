//! Frames of the WebSocket: five values, as an array (protocol version 2.0.0) or as an object (1.0.0).
//!
//! Invariants
//! - Frames of both versions are decoded into one type. A reply is encoded in the version of its socket.
//! - The values of `ref` and `join_ref` are texts that the client chose. Replies repeat them unchanged.
//! - A payload is an object, never null, because the client fails on null.
//! - A text that is not a frame is ignored; the socket stays open.

use serde_json::{Value, json};

/// The protocol version of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtocolVersion {
    V1,
    V2,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    pub join_ref: Option<String>,
    pub reference: Option<String>,
    pub topic: String,
    pub event: String,
    pub payload: Value,
}

impl ProtocolVersion {
    /// The version that the client requests. Without a request it is 1.0.0. None: the version is unknown.
    pub fn parse(text: Option<&str>) -> Option<ProtocolVersion> {
        match text {
            None | Some("1.0.0") => Some(ProtocolVersion::V1),
            Some("2.0.0") => Some(ProtocolVersion::V2),
            Some(_) => None,
        }
    }
}

impl Frame {
    pub fn decode(version: ProtocolVersion, text: &str) -> Option<Frame> {
        let value: Value = serde_json::from_str(text).ok()?;
        let [join_ref, reference, topic, event, payload] = match (version, value) {
            (ProtocolVersion::V2, Value::Array(values)) => <[Value; 5]>::try_from(values).ok()?,
            (ProtocolVersion::V1, Value::Object(mut values)) => {
                ["join_ref", "ref", "topic", "event", "payload"].map(|name| values.remove(name).unwrap_or_default())
            }
            _ => return None,
        };
        Some(Frame {
            join_ref: text_of(join_ref)?,
            reference: text_of(reference)?,
            topic: text_of(topic)??,
            event: text_of(event)??,
            payload,
        })
    }

    /// Encodes a frame. `payload` is JSON text, so that a change for many clients is encoded once.
    pub fn encode(version: ProtocolVersion, head: &FrameHeader<'_>, payload: &str) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let optional = |text: Option<&str>| text.map_or_else(|| "null".to_owned(), quoted);
        let (join_ref, reference) = (optional(head.join_ref), optional(head.reference));
        let (topic, event) = (quoted(head.topic), quoted(head.event));
        match version {
            ProtocolVersion::V2 => format!("[{join_ref},{reference},{topic},{event},{payload}]"),
            ProtocolVersion::V1 => format!(
                "{{\"topic\":{topic},\"event\":{event},\"payload\":{payload},\"ref\":{reference},\
                 \"join_ref\":{join_ref}}}"
            ),
        }
    }

    /// Encodes the reply to this frame.
    pub fn reply(&self, version: ProtocolVersion, status: &str, response: &Value) -> String {
        let head = FrameHeader { event: "phx_reply", ..self.head() };
        Frame::encode(version, &head, &json!({ "status": status, "response": response }).to_string())
    }

    /// Encodes the reply that refuses this frame.
    pub fn refusal(&self, version: ProtocolVersion, reason: &str) -> String {
        self.reply(version, "error", &json!({ "reason": reason }))
    }

    fn head(&self) -> FrameHeader<'_> {
        FrameHeader {
            join_ref: self.join_ref.as_deref(),
            reference: self.reference.as_deref(),
            topic: &self.topic,
            event: &self.event,
        }
    }
}

/// A frame without its payload.
#[derive(Clone, Copy, Debug)]
pub struct FrameHeader<'a> {
    pub join_ref: Option<&'a str>,
    pub reference: Option<&'a str>,
    pub topic: &'a str,
    pub event: &'a str,
}

/// Reads a text or null. None: the value is neither.
fn text_of(value: Value) -> Option<Option<String>> {
    match value {
        Value::Null => Some(None),
        Value::String(text) => Some(Some(text)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same() {
        let frame = Frame {
            join_ref: Some("6".to_owned()),
            reference: Some("7".to_owned()),
            topic: "realtime:a \"b\"".to_owned(),
            event: "phx_leave".to_owned(),
            payload: json!({}),
        };
        let two = r#"["6","7","realtime:a \"b\"","phx_leave",{}]"#;
        let one = r#"{"topic":"realtime:a \"b\"","event":"phx_leave","payload":{},"ref":"7","join_ref":"6"}"#;
        assert_eq!(Frame::decode(ProtocolVersion::V2, two), Some(frame.clone()));
        assert_eq!(Frame::decode(ProtocolVersion::V1, one), Some(frame.clone()));
        assert_eq!(
            frame.reply(ProtocolVersion::V2, "ok", &json!({})),
            r#"["6","7","realtime:a \"b\"","phx_reply",{"status":"ok","response":{}}]"#
        );
        assert_eq!(Frame::encode(ProtocolVersion::V1, &frame.head(), "{}"), one);
    }

    #[test]
    fn a_text_that_is_no_frame_is_ignored() {
        for text in ["", "null", "[]", "[1,2,3,4,5]", r#"["6","7",null,"x",{}]"#, r#"{"topic":"a"}"#, "[[[["] {
            assert_eq!(Frame::decode(ProtocolVersion::V2, text), None, "{text}");
            assert_eq!(Frame::decode(ProtocolVersion::V1, text), None, "{text}");
        }
    }
}
