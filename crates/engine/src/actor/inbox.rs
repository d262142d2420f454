//! Drains the session's inbox: every entry is decided on and deleted in one commit.

use segue_core::decide::{SessionInput, SubmittingSession};
use segue_store::InboxEntry;

use super::{FatalSessionError, SessionActor};
use crate::error::Error;
use crate::limits::INBOX_ENTRIES_PAGE_MAX;

impl SessionActor {
    /// Handles the entries of the inbox, oldest first, until it is empty.
    pub(super) async fn drain_inbox(&mut self) -> Result<(), FatalSessionError> {
        loop {
            // An inbox that cannot be read now is read in the next round.
            let Ok(entries) = self.shared.store.read_inbox(&self.session, INBOX_ENTRIES_PAGE_MAX).await else {
                return Ok(());
            };
            if entries.is_empty() || self.mailbox.is_draining() {
                return Ok(());
            }
            for entry in entries {
                let id = entry.id;
                match self.commit_until_written(to_input(entry)).await? {
                    // An earlier commit with an unknown outcome has handled the entry.
                    Ok(_) | Err(Error::EntryGone(_)) => {}
                    Err(error) => {
                        // The flow cannot handle it, so it ends as refused.
                        let content = Err(error.to_string());
                        let refused = SessionInput::Submitted { id, sender: None, content };
                        self.commit_until_written(refused).await?.map_err(FatalSessionError)?;
                    }
                }
                self.dispatch_effects().await?;
            }
        }
    }
}

fn to_input(entry: InboxEntry) -> SessionInput {
    let sender = entry.sender.map(|sender| SubmittingSession { session: sender.session, uid: sender.uid });
    let content = serde_json::from_slice(&entry.bytes);
    let content = content.map_err(|error| format!("the entry cannot be read by this version: {error}"));
    SessionInput::Submitted { id: entry.id, sender, content }
}
