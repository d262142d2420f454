//! Words on standard output as they come, one speaker at a time. What a second speaker says meanwhile is shown when it
//! is said.

use segue_core::ids::CallId;

use super::Live;
use crate::print;
use crate::print::text::harmless;

#[derive(Debug)]
pub(super) struct Voice {
    live: Live,
    speaking: Option<(CallId, u32)>,
    spoken: String,
}

impl Voice {
    pub fn new(live: Live) -> Self {
        Self { live, speaking: None, spoken: String::new() }
    }

    pub fn is_speaking(&self) -> bool {
        self.speaking.is_some()
    }

    /// More words of a call.
    pub fn words(&mut self, call: CallId, attempt: u32, text: &str) -> anyhow::Result<()> {
        if self.live == Live::Nothing {
            return Ok(());
        }
        match self.speaking {
            Some(speaker) if speaker == (call, attempt) => {}
            Some((other, _)) if other != call => return Ok(()),
            // Another try of the same call begins anew.
            Some(_) => self.break_off()?,
            None => {}
        }
        self.speaking = Some((call, attempt));
        self.spoken.push_str(text);
        print::out(&harmless(text))
    }

    /// What was said in the end.
    pub fn said(&mut self, call: Option<CallId>, text: &str) -> anyhow::Result<()> {
        if self.live == Live::Nothing {
            return Ok(());
        }
        let speaker = self.speaking.map(|(call, _)| call);
        match text.strip_prefix(self.spoken.as_str()).filter(|_| speaker.is_some() && speaker == call) {
            Some(rest) => {
                (self.speaking, self.spoken) = (None, String::new());
                print::out(&format!("{}\n", harmless(rest)))
            }
            None => {
                self.break_off()?;
                print::out(&format!("{}\n", harmless(text)))
            }
        }
    }

    /// The speaker will not go on.
    pub fn break_off(&mut self) -> anyhow::Result<()> {
        self.spoken.clear();
        if self.speaking.take().is_some() { print::out("\n") } else { Ok(()) }
    }
}
