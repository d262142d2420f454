//! Token counts. One vocabulary for all models: an estimate for those that have another, corrected by what vendors report.

use std::sync::LazyLock;

use segue_core::context::Count;
use tiktoken::CoreBpe;

static VOCABULARY: LazyLock<CoreBpe> = LazyLock::new(tiktoken::encoding::o200k_base);

/// Counts with the o200k vocabulary, which is loaded when it is first needed.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokens;

impl Count for Tokens {
    fn count(&self, text: &str) -> u32 {
        u32::try_from(VOCABULARY.count(text)).unwrap_or(u32::MAX)
    }
}
