//! Finds the flow of a session. A session whose flow is defined by a text has recorded that text, and runs with it, even if
//! the flow was changed or removed since.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use segue_core::body::BodyId;
use segue_core::event::{Event, SessionOpened};
use segue_core::flow::DynFlow;
use segue_core::ids::{FlowName, Seq, SessionId};
use segue_core::session::Session;

use crate::engine::EngineShared;
use crate::error::Error;
use crate::limits::LOADED_FLOWS_MAX;
use crate::load::read_events;

/// Builds flows from the definitions that sessions have recorded.
pub trait RecordedFlowLoader: Send + Sync {
    /// Builds the flow with this name.
    ///
    /// # Errors
    /// Returns what is wrong with the definition.
    fn load_flow(&self, name: &FlowName, definition: &str) -> Result<Arc<dyn DynFlow>, String>;
}

/// The flows that were built from recorded definitions, by the digest of the definition.
#[derive(Default)]
pub(crate) struct RecordedFlowCache(Mutex<BTreeMap<BodyId, Arc<dyn DynFlow>>>);

impl RecordedFlowCache {
    fn find_by_definition_digest(&self, digest: BodyId) -> Option<Arc<dyn DynFlow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(&digest).cloned()
    }

    fn insert(&self, digest: BodyId, flow: Arc<dyn DynFlow>) {
        let mut flows = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if flows.len() >= LOADED_FLOWS_MAX {
            flows.pop_first();
        }
        flows.insert(digest, flow);
    }
}

impl EngineShared {
    /// Returns the flow with which a session was opened.
    pub(crate) fn find_opened_flow(&self, opened: &SessionOpened) -> Result<Arc<dyn DynFlow>, Error> {
        match &opened.flow_definition {
            None => self.find_registered_flow(Some(&opened.flow)),
            Some(definition) => self.load_defined_flow(&opened.flow, definition),
        }
    }

    /// Returns the flow of a cached session, or `None` if its definition has to be read first.
    pub(crate) fn find_cached_flow(&self, session: &Session) -> Result<Option<Arc<dyn DynFlow>>, Error> {
        let Some(digest) = session.flow_definition else {
            return self.find_registered_flow(session.flow.as_ref()).map(Some);
        };
        let current = session.flow.as_ref().and_then(|name| self.flows.get(name));
        let is_same = |flow: &&Arc<dyn DynFlow>| flow.definition().map(BodyId::hash_text) == Some(digest);
        Ok(current.filter(is_same).cloned().or_else(|| self.loaded_flows.find_by_definition_digest(digest)))
    }

    fn load_defined_flow(&self, name: &FlowName, definition: &str) -> Result<Arc<dyn DynFlow>, Error> {
        if let Some(current) = self.flows.get(name).filter(|flow| flow.definition() == Some(definition)) {
            return Ok(current.clone());
        }
        let digest = BodyId::hash_text(definition);
        if let Some(loaded) = self.loaded_flows.find_by_definition_digest(digest) {
            return Ok(loaded);
        }
        let invalid = |faults: Vec<String>| Error::InvalidFlow { flow: name.clone(), faults };
        let Some(loader) = &self.flow_loader else {
            return Err(invalid(vec!["this program cannot read the definition that the session recorded".to_owned()]));
        };
        let flow = loader.load_flow(name, definition).map_err(|fault| invalid(vec![fault]))?;
        let faults = flow.spec().validation_errors();
        if !faults.is_empty() {
            return Err(invalid(faults));
        }
        self.loaded_flows.insert(digest, flow.clone());
        Ok(flow)
    }
}

/// Reads the flow of a session from its first event.
pub(crate) async fn read_session_flow(shared: &EngineShared, session: &SessionId) -> Result<Arc<dyn DynFlow>, Error> {
    let first = read_events(&*shared.store, session, Seq(0), 1).await?;
    match first.first().map(|recorded| &recorded.event) {
        Some(Event::SessionOpened(opened)) => shared.find_opened_flow(opened),
        _ => shared.find_registered_flow(None),
    }
}
