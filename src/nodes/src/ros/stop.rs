//! SIGINT and SIGTERM. The client library handles neither, so the node does, from the first line of `main`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Longest time from the first signal to the end of the process.
const LIMIT: Duration = Duration::from_millis(1900);

type Action = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    is_asked: bool,
    action: Option<Action>,
}

/// Whether the process was asked to end, and what to do then.
#[derive(Clone, Default)]
pub struct Stop {
    state: Arc<Mutex<State>>,
}

impl Stop {
    /// Takes over both signals. The first one runs the action (see [`Stop::on_signal`]); the process ends with code 0
    /// within two seconds even if the action hangs. A second one ends it at once with code 130.
    ///
    /// # Errors
    /// The system refuses the handlers.
    pub fn install() -> std::io::Result<Stop> {
        let stop = Stop::default();
        let mut signals = Signals::new([SIGINT, SIGTERM])?;
        let heard = stop.clone();
        std::thread::Builder::new().name("signals".into()).spawn(move || {
            for (count, _) in signals.forever().enumerate() {
                if count > 0 {
                    std::process::exit(130);
                }
                let guard = std::thread::Builder::new().name("stop-limit".into());
                let limited = guard.spawn(|| {
                    std::thread::sleep(LIMIT);
                    eprintln!("policy_node: still not done {LIMIT:?} after the signal: ending the process");
                    std::process::exit(0);
                });
                if limited.is_err() {
                    std::process::exit(0);
                }
                let on_own = heard.clone();
                // The action may take its time: the next signal must still be heard.
                if std::thread::Builder::new().name("stop".into()).spawn(move || on_own.ask()).is_err() {
                    std::process::exit(0);
                }
            }
        })?;
        Ok(stop)
    }

    fn ask(&self) {
        let action = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.is_asked = true;
            state.action.take()
        };
        if let Some(action) = action {
            action();
        }
    }

    /// What the first signal does; runs at once if it came already.
    pub fn on_signal(&self, action: impl FnOnce() + Send + 'static) {
        let is_asked = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.action = Some(Box::new(action));
            state.is_asked
        };
        if is_asked {
            self.ask();
        }
    }

    /// True after the first signal.
    pub fn is_asked(&self) -> bool {
        self.state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .is_asked
    }
}
