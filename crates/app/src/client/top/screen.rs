//! A terminal that is drawn on again and again, and listened to.
//!
//! Invariants
//! - However the command ends, the terminal is as it was: echo, line editing, cursor, contents.
//!
//! Not here: what is drawn (`client::top`).

use std::io::{self, Read, Write};

use anyhow::Context;
use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

/// Another screen, no cursor, no wrapping; and back.
const ENTER: &str = "\u{1b}[?1049h\u{1b}[?25l\u{1b}[?7l";
const LEAVE: &str = "\u{1b}[?7h\u{1b}[?25h\u{1b}[?1049l";
const HOME: &str = "\u{1b}[H";
const REST_OF_LINE: &str = "\u{1b}[K";
const REST_OF_SCREEN: &str = "\u{1b}[J";

/// What the user wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Quit,
    Interrupt,
}

#[derive(Debug)]
pub(super) struct Screen {
    /// How the terminal was; none if keys come from elsewhere.
    before: Option<Termios>,
    pressed: UnboundedReceiver<u8>,
}

impl Screen {
    pub(super) fn open() -> anyhow::Result<Screen> {
        let before = tcgetattr(io::stdin()).ok();
        if let Some(before) = &before {
            let mut keys = before.clone();
            keys.local_flags.remove(LocalFlags::ICANON | LocalFlags::ECHO);
            tcsetattr(io::stdin(), SetArg::TCSANOW, &keys).context("listen to keys")?;
        }
        let screen = Screen { before, pressed: listen() };
        write(ENTER)?;
        Ok(screen)
    }

    /// Replaces what is on the screen.
    pub(super) fn draw(&self, text: &str) -> anyhow::Result<()> {
        let lines: String = text.lines().map(|line| format!("{line}{REST_OF_LINE}\n")).collect();
        write(&format!("{HOME}{lines}{REST_OF_SCREEN}"))
    }

    /// Waits for a key that means something, or until there is something to do.
    pub(super) async fn wait(&mut self, over: impl Future<Output = ()>) -> anyhow::Result<Option<Key>> {
        tokio::pin!(over);
        let mut ended = signal(SignalKind::terminate()).context("listen to signals")?;
        loop {
            tokio::select! {
                () = &mut over => return Ok(None),
                _ = tokio::signal::ctrl_c() => return Ok(Some(Key::Interrupt)),
                _ = ended.recv() => return Ok(Some(Key::Quit)),
                Some(key) = self.pressed.recv() => {
                    if matches!(key, b'q' | b'Q') {
                        return Ok(Some(Key::Quit));
                    }
                }
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The command ends either way; what cannot be put back has no terminal any more.
        let _ = write(LEAVE);
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

/// Keys as they are pressed. The thread waits in a read and goes with the process.
fn listen() -> UnboundedReceiver<u8> {
    let (pressed, keys) = unbounded_channel();
    std::thread::spawn(move || {
        for key in io::stdin().lock().bytes().map_while(Result::ok) {
            if pressed.send(key).is_err() {
                break;
            }
        }
    });
    keys
}

fn write(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).context("write to stdout")
}
