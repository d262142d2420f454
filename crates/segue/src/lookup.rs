//! From what somebody wrote to what they meant: sessions by name, beginning or age; calls by number; flows by name.

use std::str::FromStr;

use anyhow::bail;
use segue_core::ids::{CallId, FlowName, Seq, SessionId};
use segue_engine::{Engine, Error};
use segue_store::Query;

use crate::limits::{LIST_PAGE_MAX, NAMES_SHOWN_MAX};
use crate::suggest::{hint, listed, nearest};

/// The word for the newest session.
const LAST: &str = "last";

/// The session somebody means: its name, the beginning of its name if no other begins so, or `last`.
pub async fn session(engine: &Engine, given: &str) -> anyhow::Result<SessionId> {
    if let Some(session) = exact(engine, given).await? {
        return Ok(session);
    }
    let mut begin_so = Vec::new();
    let mut all = Vec::new();
    let mut query = Query::newest(LIST_PAGE_MAX);
    loop {
        let page = engine.list(&query).await?;
        for row in page.rows {
            if !given.is_empty() && row.session.as_str().starts_with(given) {
                begin_so.push(row.session);
            } else {
                all.push(row.session);
            }
        }
        query.before = page.next;
        if query.before.is_none() {
            break;
        }
    }
    match begin_so.as_slice() {
        [only] => Ok(only.clone()),
        [] => match nearest(given, all.iter().map(SessionId::as_str)) {
            Some(name) => bail!("there is no session `{given}`; did you mean `{name}`?"),
            None => Err(Error::NoSuchSession(given.into()).into()),
        },
        several => bail!(
            "`{given}` could be any of {} sessions: {}; give more of its name",
            several.len(),
            listed(several.iter().map(SessionId::as_str))
        ),
    }
}

/// The session of exactly this name, or the newest for `last`; nothing if there is none of that name.
pub async fn exact(engine: &Engine, given: &str) -> anyhow::Result<Option<SessionId>> {
    let session = SessionId::from(given);
    match engine.events(&session, Seq(0), 1).await {
        Ok(_) => return Ok(Some(session)),
        Err(Error::NoSuchSession(_)) => {}
        Err(error) => return Err(error.into()),
    }
    if given != LAST {
        return Ok(None);
    }
    match engine.list(&Query::newest(1)).await?.rows.pop() {
        Some(row) => Ok(Some(row.session)),
        None => bail!("there are no sessions yet, so there is no last one"),
    }
}

/// The flow of that name.
pub fn flow(engine: &Engine, given: &str) -> anyhow::Result<FlowName> {
    let names: Vec<&str> = engine.flows().map(|rules| rules.spec().name.as_str()).collect();
    if names.contains(&given) {
        return Ok(given.into());
    }
    bail!("there is no flow `{given}`{}", hint(given, names))
}

/// A number such as `c3`.
pub fn number<N: FromStr<Err = String>>(given: &str) -> anyhow::Result<N> {
    given.parse().map_err(|error: String| anyhow::anyhow!(error))
}

/// A session, the newest if none is named, and a call in it.
pub fn call(what: &[String]) -> anyhow::Result<(&str, CallId)> {
    match what {
        [session, call] => Ok((session, number(call)?)),
        [call] => Ok(("last", number(call)?)),
        _ => bail!("which call? give it as `c3`"),
    }
}

/// Those of `numbers` that stand nearest to `wanted`, in order.
pub fn near(wanted: u32, mut numbers: Vec<u32>) -> Vec<u32> {
    numbers.sort_by_key(|number| number.abs_diff(wanted));
    numbers.truncate(NAMES_SHOWN_MAX);
    numbers.sort_unstable();
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_numbers_are_in_order() {
        assert_eq!(near(50, (1..=20).collect()), (13..=20).collect::<Vec<_>>());
        assert_eq!(near(3, vec![1, 2]), [1, 2]);
    }
}
