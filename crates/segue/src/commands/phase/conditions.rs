//! What the guards of a phase ask about, judged by the flow from the session as it stands.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::flow::{About, Lookup, Rules, Sight, Texts};
use segue_core::ids::SessionId;
use segue_core::phase::guard::Conditions;
use segue_core::session::State;
use segue_engine::Engine;

use super::Standing;

/// Texts at hand; notes which others were wanted.
#[derive(Debug, Default)]
struct Shelf {
    texts: BTreeMap<BodyId, Arc<str>>,
    missed: RefCell<BTreeSet<BodyId>>,
}

impl Lookup for Shelf {
    fn find(&self, id: BodyId) -> Option<Arc<str>> {
        let found = self.texts.get(&id).cloned();
        if found.is_none() {
            self.missed.borrow_mut().insert(id);
        }
        found
    }
}

/// The flow's verdicts. A flow that reads texts is asked again once they are at hand.
pub async fn judge(
    engine: &Engine,
    session: &SessionId,
    rules: &dyn Rules,
    state: &State,
    standing: &Standing<'_>,
) -> anyhow::Result<Conditions> {
    let mut shelf = Shelf::default();
    loop {
        let conditions = verdicts(rules, state, standing, &shelf);
        let missed: Vec<BodyId> = std::mem::take(&mut *shelf.missed.borrow_mut()).into_iter().collect();
        if missed.is_empty() {
            return Ok(conditions);
        }
        let texts = engine.texts(session, &missed).await?;
        shelf.texts.extend(missed.into_iter().zip(texts));
    }
}

fn verdicts(rules: &dyn Rules, state: &State, standing: &Standing<'_>, shelf: &Shelf) -> Conditions {
    let Standing { key, graph, stand } = standing;
    let (texts, about) = (Texts::new(shelf), About::default());
    let sight = Sight { session: &state.session, state: &state.flow, texts: &texts, about: &about };
    let asked = graph.conditions_at(&stand.now.current).into_iter();
    let holds = asked.map(|name| (name.to_owned(), rules.holds(sight, key, name))).collect();
    Conditions { handovers: stand.handed.clone(), holds }
}
