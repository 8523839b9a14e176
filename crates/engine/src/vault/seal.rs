//! The two layers of encryption of a secret: AES-256-GCM, with the nonce in front.
//!
//! Invariants
//! - Each version has its own random data key, which is used for one encryption only.
//! - Both layers are bound to workspace, name, version and purpose (value or key). The outer layer is also bound to the
//!   id of its key. A row that was moved, renamed or renumbered cannot be decrypted.
//!
//! Not here: which key encrypts (`keys`), where the result is stored (`store::access::secret`).

use aes_gcm::aead::{Aead, AeadCore, OsRng, Payload};
use aes_gcm::{Aes256Gcm, KeyInit, Nonce};
use kernel::ids::WorkspaceId;
use store::access::secret::Sealed;
use zeroize::{Zeroize, Zeroizing};

use super::keys::OuterKey;

const NONCE: usize = 12;

/// Encrypts a value with a new data key, and the data key with the outer key.
pub(super) fn seal(outer: &OuterKey, workspace: WorkspaceId, name: &str, version: i32, value: &[u8]) -> Sealed {
    let mut data = Aes256Gcm::generate_key(&mut OsRng);
    let associated_data = AssociatedData { workspace, name, version };
    let sealed = Sealed {
        workspace,
        name: name.to_owned(),
        version,
        value: encrypt(&Aes256Gcm::new(&data), value, &associated_data.of_value()),
        key: encrypt(&outer.cipher, &data, &associated_data.of_key(&outer.id)),
        key_id: outer.id.clone(),
        hosts: None,
    };
    data.as_mut_slice().zeroize();
    sealed
}

/// Decrypts a secret with its outer key. None if the row was tampered with or the key is a different one.
pub(super) fn open(sealed: &Sealed, outer: &OuterKey) -> Option<Zeroizing<String>> {
    let data = data_key(sealed, outer)?;
    let cipher = Aes256Gcm::new_from_slice(&data).ok()?;
    let mut value = decrypt(&cipher, &sealed.value, &AssociatedData::of(sealed).of_value())?;
    // Moved, not copied: bytes that are not UTF-8 are wiped together with `value`.
    match std::str::from_utf8(&value) {
        Ok(_) => String::from_utf8(std::mem::take(&mut *value)).ok().map(Zeroizing::new),
        Err(_) => None,
    }
}

/// True if this outer key decrypts the secret's data key. The value stays encrypted.
pub(super) fn opens(sealed: &Sealed, outer: &OuterKey) -> bool {
    data_key(sealed, outer).is_some()
}

/// Re-encrypts a secret's data key with another outer key. The value stays encrypted.
pub(super) fn reseal(sealed: &Sealed, outer: &OuterKey, next: &OuterKey) -> Option<Vec<u8>> {
    let data = data_key(sealed, outer)?;
    Some(encrypt(&next.cipher, &data, &AssociatedData::of(sealed).of_key(&next.id)))
}

fn data_key(sealed: &Sealed, outer: &OuterKey) -> Option<Zeroizing<Vec<u8>>> {
    decrypt(&outer.cipher, &sealed.key, &AssociatedData::of(sealed).of_key(&outer.id))
}

fn encrypt(cipher: &Aes256Gcm, plain: &[u8], associated_data: &[u8]) -> Vec<u8> {
    let nonce = Aes256Gcm::generate_nonce(&mut OsRng);
    let mut sealed = nonce.to_vec();
    let body = cipher.encrypt(&nonce, Payload { msg: plain, aad: associated_data });
    sealed.extend(body.expect("a value is far shorter than the cipher's limit"));
    sealed
}

fn decrypt(cipher: &Aes256Gcm, sealed: &[u8], associated_data: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
    let (nonce, body) = sealed.split_at_checked(NONCE)?;
    cipher.decrypt(Nonce::from_slice(nonce), Payload { msg: body, aad: associated_data }).ok().map(Zeroizing::new)
}

/// The associated data of an encryption: the secret that it belongs to.
struct AssociatedData<'a> {
    workspace: WorkspaceId,
    name: &'a str,
    version: i32,
}

impl<'a> AssociatedData<'a> {
    fn of(sealed: &'a Sealed) -> AssociatedData<'a> {
        AssociatedData { workspace: sealed.workspace, name: &sealed.name, version: sealed.version }
    }

    fn of_value(&self) -> Vec<u8> {
        self.bytes("value", "")
    }

    fn of_key(&self, key_id: &str) -> Vec<u8> {
        self.bytes("key", key_id)
    }

    /// No two values encode to the same bytes: names contain no NUL, and all other parts have a fixed length.
    fn bytes(&self, what: &str, key_id: &str) -> Vec<u8> {
        let mut bytes = self.workspace.0.as_bytes().to_vec();
        bytes.extend_from_slice(self.name.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&self.version.to_be_bytes());
        bytes.extend_from_slice(what.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(key_id.as_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::super::keys::{OuterKeys, generate};
    use super::*;
    use uuid::Uuid;

    fn keys() -> OuterKeys {
        OuterKeys::parse(&format!("{}{}", generate("new").as_str(), generate("old").as_str())).expect("keys")
    }

    fn sealed(keys: &OuterKeys) -> Sealed {
        seal(keys.of("old").expect("a key"), WorkspaceId(Uuid::from_u128(7)), "API_KEY", 3, b"hunter2")
    }

    #[test]
    fn what_was_sealed_opens_and_holds_nothing_in_clear() {
        let keys = keys();
        let one = sealed(&keys);
        let old = keys.of("old").expect("a key");
        assert_eq!(open(&one, old).expect("opened").as_str(), "hunter2");
        assert!(!one.value.windows(7).any(|some| some == b"hunter2"));
        let two = sealed(&keys);
        assert!(one.value != two.value && one.key != two.key, "no key and no nonce is ever reused");
    }

    #[test]
    fn what_was_moved_renamed_rolled_back_or_changed_does_not_open() {
        let keys = keys();
        let old = keys.of("old").expect("a key");
        let good = sealed(&keys);
        type Change = fn(&mut Sealed);
        let changes: [(&str, Change); 7] = [
            ("another workspace", |it| it.workspace = WorkspaceId(Uuid::from_u128(8))),
            ("another name", |it| it.name = "API_KEZ".to_owned()),
            ("another version", |it| it.version = 4),
            ("a changed value", |it| it.value[NONCE] ^= 1),
            ("a changed key", |it| it.key[NONCE] ^= 1),
            ("a short value", |it| it.value.truncate(NONCE - 1)),
            ("the value for the key", |it| it.key = it.value.clone()),
        ];
        for (what, change) in changes {
            let mut changed = good.clone();
            change(&mut changed);
            assert!(open(&changed, old).is_none(), "{what}");
        }
        assert!(open(&good, keys.of("new").expect("a key")).is_none(), "another outer key");
    }

    #[test]
    fn a_data_key_moves_to_another_outer_key_and_the_value_stays_as_it_was() {
        let keys = keys();
        let (old, new) = (keys.of("old").expect("a key"), keys.of("new").expect("a key"));
        let before = sealed(&keys);
        let key = reseal(&before, old, new).expect("opened");
        let after = Sealed { key, key_id: "new".to_owned(), ..before.clone() };
        assert_eq!(open(&after, new).expect("opened").as_str(), "hunter2");
        assert!(open(&after, old).is_none());
        assert!(reseal(&before, new, old).is_none(), "sealed by another");
    }
}
