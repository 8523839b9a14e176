//! Encrypts every payload that Forebay stores in Temporal: AES-256-GCM. The key's name is not encrypted.
//!
//! Invariants
//! - A payload encrypted with any of the keys can be read. A payload that is not encrypted is read as it is.
//! - The key's name is bound to the payload and cannot be exchanged.
//! - Ids, names, search attributes and failure types are not encrypted. They contain no customer data.
//! - The input of a user's own activity is not encrypted, because the user's workers do not have the keys.
//!
//! Not here: which keys (`settings`).

use std::sync::Arc;

use aes_gcm::aead::{Aead, AeadCore, OsRng, Payload as Sealing};
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use prost::Message;
use serde_json::Value;
use temporalio_common::data_converters::{
    DataConverter, DefaultFailureConverter, PayloadCodec, PayloadConversionError, PayloadConverter,
    SerializationContextData,
};
use temporalio_common::protos::temporal::api::common::v1::Payload;

use crate::settings::PayloadKeys;

const ENCODING: &str = "encoding";
const ENCRYPTED: &[u8] = b"binary/encrypted";
const JSON: &[u8] = b"json/plain";
/// Marks payloads that must not be encrypted.
const PLAIN: &str = "forebay-plain";
const KEY_ID: &str = "encryption-key-id";
const NONCE: usize = 12;

/// Converts values to JSON payloads, encrypted if there are keys.
pub(crate) fn converter(keys: &PayloadKeys) -> DataConverter {
    if keys.is_empty() {
        return DataConverter::default();
    }
    let ciphers = keys.all().iter().map(|key| (key.id.clone(), Aes256Gcm::new(&key.bytes.into()))).collect();
    // True: messages and stack traces of failures are encrypted too.
    DataConverter::new(PayloadConverter::default(), DefaultFailureConverter::new(true), Sealed(Arc::new(ciphers)))
}

/// A value that is not encrypted even if there are keys, for receivers that do not have the keys.
pub(crate) fn unencrypted(value: &Value) -> Payload {
    let metadata = [(ENCODING.to_owned(), JSON.to_vec()), (PLAIN.to_owned(), b"1".to_vec())].into();
    Payload { metadata, data: value.to_string().into_bytes(), ..Payload::default() }
}

struct Sealed(Arc<Vec<(String, Aes256Gcm)>>);

type Coded = BoxFuture<'static, Result<Vec<Payload>, PayloadConversionError>>;

impl PayloadCodec for Sealed {
    fn encode(&self, _context: &SerializationContextData, payloads: Vec<Payload>) -> Coded {
        let ciphers = Arc::clone(&self.0);
        async move { payloads.iter().map(|payload| seal(&ciphers, payload)).collect() }.boxed()
    }

    fn decode(&self, _context: &SerializationContextData, payloads: Vec<Payload>) -> Coded {
        let ciphers = Arc::clone(&self.0);
        async move { payloads.into_iter().map(|payload| open(&ciphers, payload)).collect() }.boxed()
    }
}

fn seal(ciphers: &[(String, Aes256Gcm)], payload: &Payload) -> Result<Payload, PayloadConversionError> {
    if payload.metadata.contains_key(PLAIN) {
        return Ok(payload.clone());
    }
    let (id, cipher) = ciphers.first().ok_or_else(|| bad("no encryption key is configured"))?;
    let nonce = Aes256Gcm::generate_nonce(&mut OsRng);
    let plain = payload.encode_to_vec();
    let sealing = Sealing { msg: &plain, aad: id.as_bytes() };
    let mut data = nonce.to_vec();
    data.extend(cipher.encrypt(&nonce, sealing).map_err(|_| bad("a payload could not be encrypted"))?);
    let metadata = [(ENCODING.to_owned(), ENCRYPTED.to_vec()), (KEY_ID.to_owned(), id.clone().into_bytes())].into();
    Ok(Payload { metadata, data, ..Payload::default() })
}

fn open(ciphers: &[(String, Aes256Gcm)], payload: Payload) -> Result<Payload, PayloadConversionError> {
    if payload.metadata.get(ENCODING).map(Vec::as_slice) != Some(ENCRYPTED) {
        return Ok(payload);
    }
    let named = payload.metadata.get(KEY_ID).map(Vec::as_slice).unwrap_or_default();
    let known = ciphers.iter().find(|(id, _)| id.as_bytes() == named);
    let (id, cipher) = known.ok_or_else(|| bad("a payload's encryption key is not configured here"))?;
    let (nonce, sealed) = payload.data.split_at_checked(NONCE).ok_or_else(|| bad("a payload is too short"))?;
    let sealing = Sealing { msg: sealed, aad: id.as_bytes() };
    let plain = cipher.decrypt(Nonce::from_slice(nonce), sealing).map_err(|_| bad("a payload cannot be decrypted"))?;
    Payload::decode(plain.as_slice()).map_err(|_| bad("a decrypted payload cannot be read"))
}

fn bad(what: &'static str) -> PayloadConversionError {
    PayloadConversionError::EncodingError(std::io::Error::other(what).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ciphers(keys: &[&str]) -> Vec<(String, Aes256Gcm)> {
        let keys =
            PayloadKeys::parse(&keys.iter().map(|key| key.repeat(32)).collect::<Vec<_>>().join(",")).expect("keys");
        keys.all().iter().map(|key| (key.id.clone(), Aes256Gcm::new(&key.bytes.into()))).collect()
    }

    fn payload(text: &str) -> Payload {
        Payload { data: text.into(), ..Payload::default() }
    }

    #[test]
    fn a_replaced_key_still_reads_what_it_wrote_and_writes_nothing() {
        let (old, both) = (ciphers(&["01"]), ciphers(&["02", "01"]));
        let before = seal(&old, &payload("hunter2")).expect("sealed");
        assert_eq!(open(&both, before.clone()).expect("opened"), payload("hunter2"));
        let after = seal(&both, &payload("hunter2")).expect("sealed");
        assert!(open(&old, after.clone()).is_err(), "the new key wrote it");
        assert!(!before.encode_to_vec().windows(7).any(|some| some == b"hunter2"));
        assert_ne!(before.data, seal(&old, &payload("hunter2")).expect("sealed").data, "no nonce is ever reused");
    }

    #[test]
    fn what_was_changed_is_refused_and_what_was_never_encrypted_is_read() {
        let keys = ciphers(&["01"]);
        assert_eq!(open(&keys, payload("plain")).expect("read"), payload("plain"));
        let mut changed = seal(&keys, &payload("x")).expect("sealed");
        changed.data[NONCE] ^= 1;
        assert!(open(&keys, changed).is_err());
        let mut short = seal(&keys, &payload("x")).expect("sealed");
        short.data.truncate(NONCE - 1);
        assert!(open(&keys, short).is_err());
        let mut renamed = seal(&ciphers(&["02", "01"]), &payload("x")).expect("sealed");
        renamed.metadata.insert(KEY_ID.to_owned(), keys[0].0.clone().into_bytes());
        assert!(open(&ciphers(&["01", "02"]), renamed).is_err());
    }
}
