//! Where commands find a `dev`: in the profile `dev`, or beside it if that is another's.
//!
//! Invariants
//! - What the user made, and what another server that lives holds, is never replaced.
//! - A `dev` that keeps no data never replaces what one that does has left.
//! - At the end only what is still our own is removed. Killed before that, it is a profile of a server that does
//!   not live, and the next one takes its place.
//!
//! Not here: the files (`crate::profile`).

use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use crate::client::api::{Api, Error};
use crate::profile::{Profile, Profiles, USUAL};

/// How long a server may take to show that it lives.
const PATIENCE: Duration = Duration::from_secs(2);

/// A profile that was written here.
#[derive(Debug)]
pub(super) struct Kept {
    profiles: Profiles,
    pub(super) name: String,
    own: Profile,
    /// Commands use it without being told.
    pub(super) is_current: bool,
}

/// Writes the profile, under the name it may have. `beside` is for the case that `dev` is taken.
pub(super) async fn keep(own: Profile, beside: &str) -> anyhow::Result<Kept> {
    let profiles = Profiles::needed()?;
    let _lock = profiles.lock()?;
    let name = match profiles.load(USUAL)? {
        Some(theirs) if !may_replace(&theirs, &own, lives(&theirs).await) => beside,
        _ => USUAL,
    };
    if name != USUAL && profiles.load(name)?.is_some_and(|theirs| theirs.dev.is_none()) {
        bail!("the profiles {USUAL} and {name} are taken");
    }
    profiles.save(name, &own)?;
    let is_current = profiles.current()? == name;
    Ok(Kept { name: name.to_owned(), own, is_current, profiles })
}

impl Kept {
    pub(super) fn path(&self) -> String {
        self.profiles.path(&self.name).display().to_string()
    }

    /// Takes away what is of no use when the server is gone: only a kept `dev` is found again.
    pub(super) fn leave(&self) -> anyhow::Result<()> {
        let comes_back = self.name == USUAL && self.own.dev.as_ref().is_some_and(|dev| dev.data_dir.is_some());
        if comes_back { Ok(()) } else { self.profiles.remove_own(&self.name, &self.own) }
    }
}

/// May this profile take the place of that one?
fn may_replace(theirs: &Profile, own: &Profile, they_live: bool) -> bool {
    let (Some(theirs), Some(own)) = (&theirs.dev, &own.dev) else { return false };
    let is_same_data = own.data_dir.is_some() && own.data_dir == theirs.data_dir;
    let is_lesser = own.data_dir.is_none() && theirs.data_dir.is_some();
    is_same_data || !they_live && !is_lesser
}

/// Does the server that a profile is of take its key? One that is too busy to say so lives.
async fn lives(profile: &Profile) -> bool {
    let Ok(api) = Api::new(&profile.server, Some(profile.key.clone())) else { return false };
    let asked = tokio::time::timeout(PATIENCE, api.get::<Value>("workspaces", &[("limit", "1")])).await;
    match asked {
        Ok(Ok(_)) | Err(_) => true,
        Ok(Err(Error::Refused { status, .. })) => status >= 500,
        Ok(Err(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Dev;

    fn profile(dev: Option<Option<&str>>) -> Profile {
        let key = "k".parse().unwrap_or_else(|never| match never {});
        let dev = dev.map(|data_dir| Dev { data_dir: data_dir.map(Into::into) });
        Profile { server: "http://127.0.0.1:1".to_owned(), key, dev }
    }

    #[test]
    fn what_is_not_ours_to_replace_stays() {
        let (a, b, ephemeral, users) = (Some(Some("/a")), Some(Some("/b")), Some(None), None);
        // theirs, own, they live, may be replaced
        let table = [
            (a, a, true, true),
            (a, a, false, true),
            (a, b, true, false),
            (a, b, false, true),
            (a, ephemeral, true, false),
            (a, ephemeral, false, false),
            (ephemeral, a, true, false),
            (ephemeral, a, false, true),
            (ephemeral, ephemeral, true, false),
            (ephemeral, ephemeral, false, true),
            (users, a, false, false),
            (users, ephemeral, false, false),
        ];
        for (theirs, own, they_live, expected) in table {
            assert_eq!(
                may_replace(&profile(theirs), &profile(own), they_live),
                expected,
                "{theirs:?} {own:?} {they_live}"
            );
        }
    }
}
