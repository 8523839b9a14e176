//! Signatures of trigger requests: how a request is signed, and whether its signature is valid.
//!
//! Invariants
//! - Signatures are compared in constant time.
//! - A time and an id are used only if the signature covers them. If a rule names a header for the time or the id, the
//!   signed pattern must contain it.
//! - A signature is accepted in one spelling only. A replay is recognised by the signed id. If only a time is signed,
//!   it is recognised by the decoded signature, never by the text of the header.
//!
//! Not here: reading headers, and storing ids and signatures to recognise replays (`server::http::triggers`).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::Sha256;

use super::{MAX_TEXT_LEN, header};
use crate::definition::fields::{CheckTime, Fields, Problem};
use crate::webhook::SECRET_PREFIX;

/// How many seconds a signed time may differ from the clock of this process, in either direction.
pub const WINDOW_S: i64 = 5 * 60;
/// The longest message id.
pub const MAX_ID_LEN: usize = 200;
/// The most signatures of one request that are checked. A sender sends two while it rotates its secret.
const MOST_SIGNATURES: usize = 16;
const MAC_LEN: usize = 32;
/// The prefix of a signature of Standard Webhooks, and the pattern that it signs.
const STANDARD_VERSION: &str = "v1,";
const STANDARD_SIGNED: &str = "{id}.{timestamp}.{body}";
/// The default headers of Standard Webhooks: signature, timestamp, id.
const STANDARD_HEADERS: [&str; 3] = ["webhook-signature", "webhook-timestamp", "webhook-id"];

/// How a request is signed: with HMAC-SHA256 and a secret of the workspace.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signature {
    #[serde(default, skip_serializing_if = "Scheme::is_own")]
    pub scheme: Scheme,
    pub header: String,
    /// The name of the workspace's secret.
    pub secret: String,
    #[serde(default)]
    pub encoding: Encoding,
    /// The text before the signature in its header, such as `sha256=`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The header with the time of the request, in seconds since 1970.
    pub timestamp_header: Option<String>,
    /// The header with the message id, which is the same each time the message is sent.
    pub id_header: Option<String>,
    /// The pattern of the signed text. It contains `{body}`, and `{timestamp}` and `{id}` if their headers are named.
    pub signed: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scheme {
    /// The other fields define how requests are signed.
    #[default]
    Own,
    /// Standard Webhooks, <https://www.standardwebhooks.com>: several signatures in one header, an id, a time, and a
    /// secret in base64.
    StandardWebhooks,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    #[default]
    Hex,
    Base64,
}

/// The values of the headers that a rule's signature names, as they arrived.
#[derive(Clone, Copy, Debug, Default)]
pub struct Given<'a> {
    pub signature: Option<&'a str>,
    pub timestamp: Option<&'a str>,
    pub id: Option<&'a str>,
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    #[error("the request is not signed: a header that its signature needs is missing")]
    Missing,
    #[error("the signature does not match the request")]
    Wrong,
    #[error("the request's timestamp is invalid, or differs from the server's clock by more than five minutes")]
    Stale,
    #[error("the secret that signs these requests is not base64, which Standard Webhooks requires")]
    Secret,
}

impl Scheme {
    fn is_own(&self) -> bool {
        *self == Scheme::Own
    }
}

/// Reads the field `signature` of a rule.
pub(super) fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Signature> {
    let known = &["scheme", "header", "secret", "encoding", "prefix", "timestamp_header", "id_header", "signed"];
    let mut fields = Fields::open(value, at, known, CheckTime::Run, problems)?;
    let schemes = &[("own", Scheme::Own), ("standard_webhooks", Scheme::StandardWebhooks)];
    let scheme = fields.choice("scheme", schemes).unwrap_or_default();
    if scheme == Scheme::Own {
        fields.require("header");
    }
    fields.require("secret");
    let (mut name, secret) = (header(&mut fields, "header"), fields.text("secret"));
    if secret.is_some_and(|name| name.is_empty() || name.len() > 128 || !name.chars().all(is_secret_name)) {
        fields.wrong("secret", "must be the name of a secret of the workspace: letters, digits and _");
    }
    let encoding = fields.choice("encoding", &[("hex", Encoding::Hex), ("base64", Encoding::Base64)]);
    let prefix = fields.text("prefix").unwrap_or_default().to_owned();
    let mut timestamp_header = header(&mut fields, "timestamp_header");
    let mut id_header = header(&mut fields, "id_header");
    let signed = fields.text("signed").map(str::to_owned);
    if prefix.len() > MAX_TEXT_LEN || signed.as_ref().is_some_and(|signed| signed.len() > MAX_TEXT_LEN) {
        fields.wrong("signed", format!("prefix and signed are at most {MAX_TEXT_LEN} bytes"));
    }
    if scheme == Scheme::StandardWebhooks {
        for other in ["encoding", "prefix", "signed"] {
            if fields.get(other).is_some() {
                fields.wrong(other, "is fixed by the scheme standard_webhooks: omit it");
            }
        }
        let [of_signature, of_time, of_id] = STANDARD_HEADERS.map(str::to_owned);
        name = name.or(Some(of_signature));
        timestamp_header = timestamp_header.or(Some(of_time));
        id_header = id_header.or(Some(of_id));
    } else {
        check_pattern(&mut fields, signed.as_deref(), timestamp_header.is_some(), id_header.is_some());
    }
    Some(Signature {
        scheme,
        header: name?,
        secret: secret?.to_owned(),
        encoding: encoding.unwrap_or_default(),
        prefix,
        timestamp_header,
        id_header,
        signed,
    })
}

fn check_pattern(fields: &mut Fields<'_, '_>, signed: Option<&str>, timed: bool, named: bool) {
    let Some(pattern) = signed else {
        if named {
            fields.wrong("id_header", "needs signed, a pattern that contains {id}: an id is used only if it is signed");
        }
        return;
    };
    let holds = |placeholder: &str, wanted: bool| pattern.matches(placeholder).count() == usize::from(wanted);
    if !holds("{body}", true) || !holds("{timestamp}", timed) || !holds("{id}", named) {
        let message =
            "must contain {body} once, {timestamp} once if timestamp_header is set, and {id} once if id_header is set";
        fields.wrong("signed", message);
    } else if let Some(other) = other_placeholder(pattern) {
        let message = format!("{other} is not a placeholder: use only {{body}}, {{timestamp}} and {{id}}");
        fields.wrong("signed", message);
    }
}

/// The first `{…}` that is not a known placeholder.
fn other_placeholder(pattern: &str) -> Option<&str> {
    let mut rest = pattern;
    while let Some(open) = rest.find('{') {
        let close = rest[open..].find('}').map_or(rest.len(), |close| open + close + 1);
        let found = &rest[open..close];
        if !["{body}", "{timestamp}", "{id}"].contains(&found) {
            return Some(found);
        }
        rest = &rest[close..];
    }
    None
}

fn is_secret_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// Checks a request. Returns the text by which a replay of it is recognised, or `None` if neither an id nor a time is
/// signed. `now_s` is the time of this process.
pub fn verify(
    signature: &Signature,
    secret: &[u8],
    given: Given<'_>,
    body: &[u8],
    now_s: i64,
) -> Result<Option<String>, SignatureError> {
    let needed = |header: &Option<String>, value: Option<&'_ str>| match header {
        None => Ok(String::new()),
        Some(_) => value.map(|value| value.trim().to_owned()).ok_or(SignatureError::Missing),
    };
    let text = given.signature.ok_or(SignatureError::Missing)?.trim();
    let timestamp = needed(&signature.timestamp_header, given.timestamp)?;
    let id = needed(&signature.id_header, given.id)?;
    // The signed text has dots between its parts. With a dot in the id, another id and time could have the same text.
    if signature.id_header.is_some() && (id.is_empty() || id.len() > MAX_ID_LEN || id.contains('.')) {
        return Err(SignatureError::Wrong);
    }
    let key = key(signature.scheme, secret)?;
    let mac = expected(signature, &key, &timestamp, &id, body);
    let good =
        decoded_signatures(signature, text).into_iter().find(|decoded| mac.clone().verify_slice(decoded).is_ok());
    let good = good.ok_or(SignatureError::Wrong)?;
    // Checked last, because only the valid signature shows that the time is the sender's.
    if signature.timestamp_header.is_some() {
        let digits = !timestamp.is_empty() && timestamp.bytes().all(|byte| byte.is_ascii_digit());
        let at: i64 = timestamp.parse().ok().filter(|_| digits).ok_or(SignatureError::Stale)?;
        if now_s.saturating_sub(at).saturating_abs() > WINDOW_S {
            return Err(SignatureError::Stale);
        }
    }
    Ok(match (&signature.id_header, &signature.timestamp_header) {
        (Some(_), _) => Some(format!("id/{id}")),
        (None, Some(_)) => Some(format!("mac/{}", good.iter().map(|byte| format!("{byte:02x}")).collect::<String>())),
        (None, None) => None,
    })
}

/// The HMAC key: the secret itself, or for Standard Webhooks the decoded secret.
fn key(scheme: Scheme, secret: &[u8]) -> Result<Vec<u8>, SignatureError> {
    if scheme == Scheme::Own {
        return Ok(secret.to_vec());
    }
    let bare = secret.trim_ascii();
    let bare = bare.strip_prefix(SECRET_PREFIX.as_bytes()).unwrap_or(bare);
    STANDARD.decode(bare).ok().filter(|key| !key.is_empty()).ok_or(SignatureError::Secret)
}

/// The decoded signatures in a header. Signatures that cannot be decoded are left out.
fn decoded_signatures(signature: &Signature, text: &str) -> Vec<Vec<u8>> {
    let decoded = |encoded: &str, encoding| match encoding {
        Encoding::Hex => unhex(encoded),
        Encoding::Base64 => STANDARD.decode(encoded).ok().filter(|mac| mac.len() == MAC_LEN),
    };
    match signature.scheme {
        Scheme::Own => {
            let encoded = text.strip_prefix(&signature.prefix);
            encoded.and_then(|encoded| decoded(encoded, signature.encoding)).into_iter().collect()
        }
        Scheme::StandardWebhooks => {
            let each = text.split(' ').filter_map(|one| one.strip_prefix(STANDARD_VERSION));
            each.take(MOST_SIGNATURES).filter_map(|encoded| decoded(encoded, Encoding::Base64)).collect()
        }
    }
}

fn expected(signature: &Signature, key: &[u8], timestamp: &str, id: &str, body: &[u8]) -> Hmac<Sha256> {
    let usual = match (signature.scheme, &signature.timestamp_header) {
        (Scheme::StandardWebhooks, _) => STANDARD_SIGNED,
        (Scheme::Own, Some(_)) => "{timestamp}.{body}",
        (Scheme::Own, None) => "{body}",
    };
    let pattern = signature.signed.as_deref().unwrap_or(usual);
    let (before, after) = pattern.split_once("{body}").unwrap_or(("", ""));
    // Split first, so a timestamp or id that contains a placeholder is not replaced again.
    let filled = |part: &str| {
        let parts = part.split("{timestamp}").map(|part| part.replace("{id}", id));
        parts.collect::<Vec<_>>().join(timestamp)
    };
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
    mac.update(filled(before).as_bytes());
    mac.update(body);
    mac.update(filled(after).as_bytes());
    mac
}

/// Decodes a signature of lower-case hexadecimal digits. Other spellings are refused, so that a replay cannot pass by
/// changing the spelling.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let pairs = text.as_bytes().chunks_exact(2);
    if text.len() != 2 * MAC_LEN {
        return None;
    }
    pairs.map(|pair| Some((digit(pair[0])? << 4) | digit(pair[1])?)).collect()
}

#[cfg(test)]
mod tests;
