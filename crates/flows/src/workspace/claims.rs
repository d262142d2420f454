//! Claims: named exclusive rights, each with a holder and a queue. The oldest request is granted first.

use std::collections::{BTreeMap, VecDeque};

use segue_core::ids::{AskId, SessionId, SessionUid, UnixMillis};
use serde::{Deserialize, Serialize};

use super::requests::WorkspaceClaimStatusReply;

/// The claims that have a holder.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct WorkspaceClaimTable {
    by_name: BTreeMap<String, WorkspaceClaimHolderAndWaiters>,
}

/// The holder of a claim and those who wait for it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct WorkspaceClaimHolderAndWaiters {
    pub holder: Option<WorkspaceClaimant>,
    pub held_since: UnixMillis,
    /// Oldest first.
    pub waiting: VecDeque<WorkspaceClaimant>,
}

/// A session that holds a claim or waits for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WorkspaceClaimant {
    pub session: SessionId,
    /// Its identity: another session with the same name is another claimant.
    pub uid: SessionUid,
    /// The question by which it requested the claim.
    pub ask: AskId,
}

impl WorkspaceClaimTable {
    pub(super) fn queue(&mut self, claim: String, by: WorkspaceClaimant) {
        self.by_name.entry(claim).or_default().waiting.push_back(by);
    }

    pub(super) fn grant(&mut self, claim: String, to: WorkspaceClaimant, at: UnixMillis) {
        let status = self.by_name.entry(claim).or_default();
        status.waiting.retain(|waiting| *waiting != to);
        (status.holder, status.held_since) = (Some(to), at);
    }

    pub(super) fn free(&mut self, claim: &str, from: &WorkspaceClaimant) {
        if let Some(status) = self.by_name.get_mut(claim).filter(|status| status.holder.as_ref() == Some(from)) {
            status.holder = None;
        }
        self.drop_unused_claims();
    }

    pub(super) fn withdraw(&mut self, claim: &str, by: &WorkspaceClaimant) {
        if let Some(status) = self.by_name.get_mut(claim) {
            status.waiting.retain(|waiting| waiting != by);
        }
        self.drop_unused_claims();
    }

    fn drop_unused_claims(&mut self) {
        self.by_name.retain(|_, status| status.holder.is_some() || !status.waiting.is_empty());
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&String, &WorkspaceClaimHolderAndWaiters)> {
        self.by_name.iter()
    }

    pub(super) fn get(&self, claim: &str) -> Option<&WorkspaceClaimHolderAndWaiters> {
        self.by_name.get(claim)
    }

    /// Says who holds a claim and who waits for it.
    pub(super) fn holder_and_waiters(&self, claim: &str) -> WorkspaceClaimStatusReply {
        let Some(status) = self.get(claim) else { return WorkspaceClaimStatusReply::default() };
        WorkspaceClaimStatusReply {
            holder: status.holder.as_ref().map(|holder| holder.session.clone()),
            waiting: status.waiting.iter().map(|waiting| waiting.session.clone()).collect(),
        }
    }

    /// Returns the claim that a session holds, as identified by its uid.
    pub(super) fn held_by(&self, uid: SessionUid) -> Option<(&String, &WorkspaceClaimant)> {
        self.by_name.iter().find_map(|(claim, status)| {
            let holder = status.holder.as_ref().filter(|holder| holder.uid == uid)?;
            Some((claim, holder))
        })
    }

    /// Returns the claim for which a session waits.
    pub(super) fn awaited_by(&self, uid: SessionUid) -> Option<(&String, &WorkspaceClaimant)> {
        self.by_name.iter().find_map(|(claim, status)| {
            let waiting = status.waiting.iter().find(|waiting| waiting.uid == uid)?;
            Some((claim, waiting))
        })
    }

    /// Returns the claim that was granted by the reply to a question.
    pub(super) fn granted_by(&self, ask: AskId) -> Option<(&String, &WorkspaceClaimant)> {
        self.by_name.iter().find_map(|(claim, status)| {
            let holder = status.holder.as_ref().filter(|holder| holder.ask == ask)?;
            Some((claim, holder))
        })
    }
}
