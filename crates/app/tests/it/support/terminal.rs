//! Runs a command in a terminal, as a person does.

use parking_lot::Mutex;
use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use nix::pty::{Winsize, openpty};

use super::until;

/// A command in the foreground of a terminal of its own; killed when dropped.
pub(crate) struct Terminal {
    child: Child,
    keyboard: File,
    screen: Arc<Mutex<Vec<u8>>>,
}

impl Terminal {
    pub(crate) fn open(command: &Command) -> Terminal {
        let size = Winsize { ws_row: 40, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        let pty = openpty(Some(&size), None).expect("a terminal");
        let end = || Stdio::from(pty.slave.try_clone().expect("a descriptor"));
        // It makes the terminal the command's own, which std cannot.
        let mut inside = Command::new("setsid");
        inside.arg("--ctty").arg(command.get_program()).args(command.get_args());
        inside.env_clear().envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        inside.env("TERM", "xterm").current_dir(command.get_current_dir().expect("a directory"));
        let child = inside.stdin(end()).stdout(end()).stderr(end()).spawn().expect("setsid");
        let (keyboard, mut master) =
            (File::from(pty.master.try_clone().expect("a descriptor")), File::from(pty.master));
        let screen = Arc::new(Mutex::new(Vec::new()));
        let written = Arc::clone(&screen);
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Its end is an error once nobody has the other side.
            while let Ok(count @ 1..) = master.read(&mut bytes) {
                written.lock().extend_from_slice(&bytes[..count]);
            }
        });
        Terminal { child, keyboard, screen }
    }

    /// All that was ever written to it.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.screen.lock()).into_owned()
    }

    pub(crate) async fn shows(&self, text: &str) {
        until(&format!("the terminal shows {text:?}: {}", self.text()), async || {
            self.text().contains(text).then_some(())
        })
        .await;
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("a keyboard");
    }

    pub(crate) async fn ended(&mut self) -> ExitStatus {
        until("the command ends", async || self.child.try_wait().expect("the process is ours")).await
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}
