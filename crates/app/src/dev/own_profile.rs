//! The profile that a running `dev` writes for commands: `dev`, or another name if `dev` is taken.
//!
//! Invariants
//! - A profile of the user, or of another running server, is never replaced.
//! - A `dev` without kept data never replaces the profile of a `dev` with kept data.
//! - At exit `dev` removes only the profile that it wrote. If `dev` was killed, its profile stays. The next `dev`
//!   notices that the server in that profile does not answer, and replaces the profile.
//!
//! Not here: the files (`crate::profile`).

use std::time::Duration;

use anyhow::bail;
use serde_json::Value;

use crate::client::api::{Api, Error};
use crate::profile::{DEFAULT, Profile, Profiles};

/// How long a server may take to answer before it counts as running.
const PATIENCE: Duration = Duration::from_secs(2);

/// The profile that this process wrote.
#[derive(Debug)]
pub(super) struct OwnProfile {
    profiles: Profiles,
    pub(super) name: String,
    own: Profile,
    /// Whether commands use it by default.
    pub(super) is_current: bool,
}

/// Writes the profile as `dev`, or as `fallback` if `dev` is taken.
pub(super) async fn write(own: Profile, fallback: &str) -> anyhow::Result<OwnProfile> {
    let profiles = Profiles::required()?;
    let _lock = profiles.lock()?;
    let name = match profiles.load(DEFAULT)? {
        Some(theirs) if !may_replace(&theirs, &own, is_running(&theirs).await) => fallback,
        _ => DEFAULT,
    };
    if name != DEFAULT && profiles.load(name)?.is_some_and(|theirs| theirs.dev.is_none()) {
        bail!("cannot write a profile: the profiles {DEFAULT} and {name} exist already");
    }
    profiles.save(name, &own)?;
    let is_current = profiles.current()? == name;
    Ok(OwnProfile { name: name.to_owned(), own, is_current, profiles })
}

impl OwnProfile {
    pub(super) fn path(&self) -> String {
        self.profiles.path(&self.name).display().to_string()
    }

    /// Removes the profile, unless the next start of the same `dev` uses it again.
    pub(super) fn remove_at_exit(&self) -> anyhow::Result<()> {
        let comes_back = self.name == DEFAULT && self.own.dev.as_ref().is_some_and(|dev| dev.data_dir.is_some());
        if comes_back { Ok(()) } else { self.profiles.remove_own(&self.name, &self.own) }
    }
}

/// Whether our profile may replace the existing profile.
fn may_replace(theirs: &Profile, own: &Profile, is_running: bool) -> bool {
    let (Some(theirs), Some(own)) = (&theirs.dev, &own.dev) else { return false };
    let is_same_data = own.data_dir.is_some() && own.data_dir == theirs.data_dir;
    let is_lesser = own.data_dir.is_none() && theirs.data_dir.is_some();
    is_same_data || !is_running && !is_lesser
}

/// Whether the server of a profile runs and accepts its key. A server that is too slow to answer counts as running.
async fn is_running(profile: &Profile) -> bool {
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
    fn a_profile_of_the_user_or_of_a_running_server_is_not_replaced() {
        let (a, b, ephemeral, users) = (Some(Some("/a")), Some(Some("/b")), Some(None), None);
        // theirs, own, is running, may be replaced
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
        for (theirs, own, is_running, expected) in table {
            assert_eq!(
                may_replace(&profile(theirs), &profile(own), is_running),
                expected,
                "{theirs:?} {own:?} {is_running}"
            );
        }
    }
}
