//! A tool that works, fails, breaks down or never comes back.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::ids::Seq;
use segue_engine::tools::{Tool, ToolRequest};
use segue_store::Store;
use segue_store::memory::MemoryStore;

use crate::dice::Dice;
use crate::world::{Ran, World};

pub struct SimTool {
    world: Arc<World>,
    dice: Mutex<Dice>,
    eyes: MemoryStore,
}

impl SimTool {
    pub fn new(world: &Arc<World>, dice: Dice) -> Self {
        Self { world: world.clone(), dice: Mutex::new(dice), eyes: MemoryStore::open(&world.disk) }
    }
}

#[async_trait]
impl Tool for SimTool {
    async fn run(&self, request: ToolRequest) -> Result<String, String> {
        let records = crate::store::now(self.eyes.read(&request.session, Seq(0), usize::MAX));
        let head = Seq(records.map_or(0, |records| records.len() as u64));
        self.world.notes().runs.push(Ran { session: request.session, run: request.opened.run, head });
        let (kind, ms) = {
            let mut dice = self.dice.lock().expect("nobody panics here");
            (dice.below(20), dice.below(300))
        };
        tokio::time::sleep(Duration::from_millis(ms)).await;
        match kind {
            0 => std::future::pending().await,
            1 => std::panic::resume_unwind(Box::new("the tool breaks down")),
            2..=4 => Err("it is dark".to_owned()),
            _ => Ok(format!("two files by {}", request.opened.run)),
        }
    }
}
