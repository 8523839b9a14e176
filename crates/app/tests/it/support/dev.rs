//! Runs `forebay dev` as a process, with its own data directory and its own user configuration.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::cli::Cli;
use super::http::Api;
use super::process::Process;
use super::tenant::text;

/// A machine that `forebay dev` is started on, once or more often.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    pub(crate) user: Cli,
}

pub(crate) struct Dev {
    pub(crate) process: Process,
    pub(crate) base: String,
}

impl Place {
    pub(crate) fn new() -> Place {
        // The server's user must be able to enter it.
        let directory = tempfile::Builder::new().prefix("fb-").tempdir_in("/tmp").expect("a directory");
        std::fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).expect("permissions");
        Place { directory, user: Cli::new() }
    }

    pub(crate) fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    pub(crate) fn spawn(&self, arguments: &[&str]) -> Process {
        self.spawn_at("data", arguments)
    }

    /// With another data directory than usual.
    fn spawn_at(&self, data: &str, arguments: &[&str]) -> Process {
        let data = self.directory.path().join(data);
        let mut command = self.user.command(&["dev", "--listen", "127.0.0.1:0"]);
        command.arg("--data-dir").arg(data).args(arguments);
        Process::spawn("dev", command)
    }

    /// Starts it and waits until it says that all is there.
    pub(crate) async fn start(&self, arguments: &[&str]) -> Dev {
        self.start_at("data", arguments).await
    }

    pub(crate) async fn start_at(&self, data: &str, arguments: &[&str]) -> Dev {
        let mut process = self.spawn_at(data, arguments);
        let base = process.says("Forebay is running at ").await;
        process.says("Press Ctrl-C to stop everything.").await;
        Dev { process, base }
    }

    /// Starts it in an environment of `NAME=value`, and waits until it says that all is there.
    pub(crate) async fn start_in(&self, environment: &[&str], arguments: &[&str]) -> Dev {
        let mut command = self.user.command(&["dev", "--listen", "127.0.0.1:0"]);
        command.envs(environment.iter().filter_map(|pair| pair.split_once('='))).args(arguments);
        let mut process = Process::spawn("dev", command);
        let base = process.says("Forebay is running at ").await;
        process.says("Press Ctrl-C to stop everything.").await;
        Dev { process, base }
    }

    /// The profile that commands of this user find.
    pub(crate) fn profile(&self) -> PathBuf {
        self.user.home().join(".config/forebay/dev.json")
    }

    /// The database server's process id, if its file is there.
    pub(crate) fn postgres(&self) -> Option<i32> {
        let file = std::fs::read_to_string(self.data().join("pg/postmaster.pid")).ok()?;
        file.lines().next()?.trim().parse().ok()
    }
}

impl Dev {
    pub(crate) fn api(&self, place: &Place) -> Api {
        let profile = std::fs::read_to_string(place.profile()).expect("a profile");
        let profile: serde_json::Value = serde_json::from_str(&profile).expect("JSON");
        Api::new(&self.base, Some(&text(&profile["key"])))
    }
}
