//! A streaming standby of the measured server, on the same machine.
//!
//!     base backup ──▶ start ──answers──▶ follows the primary ──SIGINT──▶ stopped, its files removed
//!
//! Invariants
//! - It is asynchronous, and it flushes what it receives.
//! - It runs as the user that owns the primary's files, because PostgreSQL refuses to run as root.
//! - It is killed if this program dies.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use store::connect::Target;
use tokio::process::{Child, Command};
use tokio_postgres::Client;

use crate::measure::world::World;
use crate::service::command_tied_to_parent;

/// How long the standby may take to answer, and to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running standby.
pub(super) struct Standby {
    child: Child,
    dir: PathBuf,
    /// The URL of the same database as on the primary.
    url: String,
}

/// The server to follow.
struct Primary {
    programs: PathBuf,
    uid: u32,
    gid: u32,
    max_connections: String,
}

impl Standby {
    /// Copies the server of a world, and starts the copy as its standby. Returns when it answers.
    pub(super) async fn start(world: &World) -> Result<Standby> {
        let primary = Primary::of(world).await?;
        let dir = std::env::temp_dir().join(format!("forebay-bench-standby-{}", store::new_id().simple()));
        std::fs::create_dir(&dir).with_context(|| format!("make {}", dir.display()))?;
        std::fs::set_permissions(&dir, std::fs::Permissions::from_mode(0o700))?;
        chown(&dir, Some(primary.uid), Some(primary.gid)).context("give the directory to the server's user")?;
        primary.back_up(world, &dir).await?;
        let mut server = primary.command("postgres", &dir)?;
        server.arg("-D").arg(dir.join("pg"));
        let sockets = format!("unix_socket_directories={}", dir.display());
        // A standby must allow at least as many connections as its primary.
        let connections = format!("max_connections={}", primary.max_connections);
        for setting in ["listen_addresses=", "port=5432", "hot_standby=on", "jit=off", &sockets, &connections] {
            server.arg("-c").arg(setting);
        }
        let child = server.spawn().context("start the standby")?;
        let mut standby = Standby { child, url: at_host(&world.url, &dir)?, dir };
        standby.wait_until_ready().await?;
        Ok(standby)
    }

    /// A connection to the standby.
    pub(super) async fn connect(&self) -> Result<Client> {
        Target::new(&self.url)?.connect().await.context("connect to the standby")
    }

    async fn wait_until_ready(&mut self) -> Result<()> {
        let began = Instant::now();
        while self.connect().await.is_err() {
            let log = self.dir.join("log");
            if let Some(status) = self.child.try_wait()? {
                bail!("the standby ended with {status}; see {}", log.display());
            }
            ensure!(began.elapsed() < PATIENCE, "the standby does not answer; see {}", log.display());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    /// Stops the standby and removes its files.
    pub(super) async fn stop(mut self) -> Result<()> {
        let pid = self.child.id().context("the standby ended by itself")?;
        kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGINT).context("stop the standby")?;
        tokio::time::timeout(PATIENCE, self.child.wait()).await.context("wait for the standby to stop")??;
        std::fs::remove_dir_all(&self.dir).with_context(|| format!("remove {}", self.dir.display()))
    }
}

impl Primary {
    async fn of(world: &World) -> Result<Primary> {
        let sql = "SELECT setting, current_setting('data_directory'), current_setting('max_connections')
                     FROM pg_config WHERE name = 'BINDIR'";
        let row = world.client.query_one(sql, &[]).await.context("find the server's programs")?;
        let (programs, data): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        let owner = std::fs::metadata(&data).with_context(|| format!("look at {data}"))?;
        Ok(Primary { programs: programs.into(), uid: owner.uid(), gid: owner.gid(), max_connections: row.try_get(2)? })
    }

    /// Copies the server's files, with the settings by which the copy follows it.
    async fn back_up(&self, world: &World, dir: &Path) -> Result<()> {
        let mut copy = self.command("pg_basebackup", dir)?;
        copy.arg("-D").arg(dir.join("pg")).args(["-R", "-X", "stream", "-c", "fast", "-w", "-d"]);
        copy.arg(format!("{}&port=5432", world.url));
        let status = copy.status().await.context("run pg_basebackup")?;
        ensure!(status.success(), "pg_basebackup ended with {status}; see {}", dir.join("log").display());
        Ok(())
    }

    /// One of the server's programs, run by the server's user. Its output goes to the log.
    fn command(&self, program: &str, dir: &Path) -> Result<Command> {
        let log = std::fs::File::options().create(true).append(true).open(dir.join("log")).context("open the log")?;
        let mut command = command_tied_to_parent(&self.programs.join(program));
        // "/" is a directory that every user may read.
        command.uid(self.uid).gid(self.gid).current_dir("/").env_clear().env("LC_ALL", "C");
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        Ok(command)
    }
}

/// The same database on the server whose socket is in this directory.
fn at_host(url: &str, dir: &Path) -> Result<String> {
    let (before, rest) = url.split_once("host=").context("find the host of the database")?;
    let after = rest.split_once('&').map_or(String::new(), |(_, after)| format!("&{after}"));
    Ok(format!("{before}host={}{after}", dir.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_of_a_url_changes() {
        let url = at_host("postgresql:///lag?host=/tmp/a/s&user=forebay", Path::new("/tmp/b")).expect("it has a host");
        assert_eq!(url, "postgresql:///lag?host=/tmp/b&user=forebay");
    }
}
