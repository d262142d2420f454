//! A tool that succeeds, fails, panics or hangs at random.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use segue_core::tool::ToolResult;
use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};

use crate::actions::read_head;
use crate::seeded_random::SeededRandom;
use crate::world::{SimWorld, StartedToolRun};

pub(crate) struct SimTool {
    world: Arc<SimWorld>,
    random: Mutex<SeededRandom>,
}

impl SimTool {
    pub(crate) fn new(world: &Arc<SimWorld>, random: SeededRandom) -> Self {
        Self { world: world.clone(), random: Mutex::new(random) }
    }
}

#[async_trait]
impl Tool for SimTool {
    async fn run(&self, request: ToolInvocation, _: ToolRunContext) -> ToolResult {
        let head = read_head(&self.world.disk, &request.session);
        self.world.observations().runs.push(StartedToolRun { session: request.session, run: request.opened.run, head });
        let (kind, ms) = {
            let mut random = self.random.lock().expect("not poisoned");
            (random.below(100), random.below(300))
        };
        tokio::time::sleep(Duration::from_millis(ms)).await;
        match kind {
            0 => std::future::pending().await,
            1..=4 => std::panic::resume_unwind(Box::new("the tool breaks down")),
            5..=20 => ToolResult::failed("it is dark"),
            _ => ToolResult::done(format!("two files by {}", request.opened.run)),
        }
    }
}
