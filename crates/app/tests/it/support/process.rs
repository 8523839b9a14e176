//! A child process whose output is kept.

use parking_lot::Mutex;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::until;

/// For how long after its end the last words of a process are waited for: whoever it started may keep the pipe open.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Lines as they came.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<String>>>, Arc<AtomicBool>);

impl Lines {
    pub(crate) fn all(&self) -> Vec<String> {
        self.0.lock().clone()
    }

    pub(crate) fn contain(&self, text: &str) -> bool {
        self.all().iter().any(|line| line.contains(text))
    }

    /// Has all of it been read?
    fn are_complete(&self) -> bool {
        self.1.load(Ordering::Acquire)
    }

    fn follow(&self, from: impl Read + Send + 'static) {
        let lines = self.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines().map_while(Result::ok) {
                lines.0.lock().push(line);
            }
            lines.1.store(true, Ordering::Release);
        });
    }
}

/// A running child; killed when dropped.
pub(crate) struct Process {
    child: Child,
    name: String,
    pub(crate) stdout: Lines,
    pub(crate) stderr: Lines,
}

/// The binary under test, without this process's environment.
pub(crate) fn forebay() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command
}

impl Process {
    pub(crate) fn spawn(name: &str, mut command: Command) -> Process {
        command.stdin(Stdio::null());
        Process::spawn_listening(name, command)
    }

    /// One whose input is whatever the command says.
    pub(crate) fn spawn_listening(name: &str, mut command: Command) -> Process {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary starts");
        let (stdout, stderr) = (Lines::default(), Lines::default());
        stdout.follow(child.stdout.take().expect("stdout is piped"));
        stderr.follow(child.stderr.take().expect("stderr is piped"));
        Process { child, name: name.to_owned(), stdout, stderr }
    }

    /// Says a line to one whose input is a pipe.
    pub(crate) fn tell(&self, line: &str) {
        let mut input = self.child.stdin.as_ref().expect("its input is a pipe");
        writeln!(input, "{line}").expect("it listens");
    }

    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("a process id")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.pid()), signal).expect("the process is there");
    }

    /// Ends it as a power cut would.
    pub(crate) fn sigkill(&mut self) {
        self.child.kill().expect("the process is ours");
        self.child.wait().expect("the process is ours");
    }

    /// The first line of its output that starts so, without that start.
    pub(crate) async fn says(&mut self, start: &str) -> String {
        let what = format!("{} says {start:?}", self.name);
        until(&what, async || {
            let found = self.stdout.all().iter().find_map(|line| line.strip_prefix(start).map(str::to_owned));
            let ended = found.is_none() && self.child.try_wait().expect("the process is ours").is_some();
            assert!(!ended, "{what}, but it ended: {:?} {:?}", self.stdout.all(), self.stderr.all());
            found
        })
        .await
    }

    /// Waits for its end, and for its last words.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let what = format!("{} ends", self.name);
        let status = until(&what, async || self.child.try_wait().expect("the process is ours")).await;
        let began = Instant::now();
        while !(self.stdout.are_complete() && self.stderr.are_complete()) && began.elapsed() < LAST_WORDS {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
        if std::thread::panicking() {
            let mut out = std::io::stderr().lock();
            for line in self.stdout.all().iter().chain(&self.stderr.all()) {
                let _closed = writeln!(out, "[{}] {line}", self.name);
            }
        }
    }
}
