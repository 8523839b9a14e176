//! Frames of the socket: five values, as an array (2.0.0) or an object (1.0.0).
//!
//! Invariants
//! - Decoded into one type, encoded as the socket speaks. References are the client's own texts and are echoed
//!   unchanged.
//! - A payload is an object, never null: null breaks the client.
//! - What is no frame is nothing; the socket stays.

use serde_json::{Value, json};

/// How a socket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
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

impl Version {
    /// As the client asks for it; who asks for nothing speaks the first.
    pub fn parse(text: Option<&str>) -> Option<Version> {
        match text {
            None | Some("1.0.0") => Some(Version::V1),
            Some("2.0.0") => Some(Version::V2),
            Some(_) => None,
        }
    }
}

impl Frame {
    pub fn decode(version: Version, text: &str) -> Option<Frame> {
        let value: Value = serde_json::from_str(text).ok()?;
        let [join_ref, reference, topic, event, payload] = match (version, value) {
            (Version::V2, Value::Array(values)) => <[Value; 5]>::try_from(values).ok()?,
            (Version::V1, Value::Object(mut values)) => {
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

    /// As text. `payload` is JSON already: the part of a change that is the same for all is written once.
    pub fn write(version: Version, head: &Head<'_>, payload: &str) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let optional = |text: Option<&str>| text.map_or_else(|| "null".to_owned(), quoted);
        let (join_ref, reference) = (optional(head.join_ref), optional(head.reference));
        let (topic, event) = (quoted(head.topic), quoted(head.event));
        match version {
            Version::V2 => format!("[{join_ref},{reference},{topic},{event},{payload}]"),
            Version::V1 => format!(
                "{{\"topic\":{topic},\"event\":{event},\"payload\":{payload},\"ref\":{reference},\
                 \"join_ref\":{join_ref}}}"
            ),
        }
    }

    /// The answer to this frame.
    pub fn reply(&self, version: Version, status: &str, response: &Value) -> String {
        let head = Head { event: "phx_reply", ..self.head() };
        Frame::write(version, &head, &json!({ "status": status, "response": response }).to_string())
    }

    /// The answer that refuses it.
    pub fn refusal(&self, version: Version, reason: &str) -> String {
        self.reply(version, "error", &json!({ "reason": reason }))
    }

    fn head(&self) -> Head<'_> {
        Head {
            join_ref: self.join_ref.as_deref(),
            reference: self.reference.as_deref(),
            topic: &self.topic,
            event: &self.event,
        }
    }
}

/// All of a frame but its payload.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    pub join_ref: Option<&'a str>,
    pub reference: Option<&'a str>,
    pub topic: &'a str,
    pub event: &'a str,
}

/// A text or null; none for anything else.
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
        assert_eq!(Frame::decode(Version::V2, two), Some(frame.clone()));
        assert_eq!(Frame::decode(Version::V1, one), Some(frame.clone()));
        assert_eq!(
            frame.reply(Version::V2, "ok", &json!({})),
            r#"["6","7","realtime:a \"b\"","phx_reply",{"status":"ok","response":{}}]"#
        );
        assert_eq!(Frame::write(Version::V1, &frame.head(), "{}"), one);
    }

    #[test]
    fn what_is_no_frame_is_nothing() {
        for text in ["", "null", "[]", "[1,2,3,4,5]", r#"["6","7",null,"x",{}]"#, r#"{"topic":"a"}"#, "[[[["] {
            assert_eq!(Frame::decode(Version::V2, text), None, "{text}");
            assert_eq!(Frame::decode(Version::V1, text), None, "{text}");
        }
    }
}
