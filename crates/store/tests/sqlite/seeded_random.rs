//! Random numbers and prose from a seed.

#[derive(Debug, Clone)]
pub(crate) struct SeededRandom(pub u64);

impl SeededRandom {
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 32) as usize) % bound.max(1)
    }

    /// Generates words as varied as those of a conversation. Repeated sentences would compress too well.
    pub(crate) fn prose(&mut self, chars: usize) -> String {
        const SYLLABLES: &str = "ka re to mi sa lu ne do vi pa ro ti me su la ni de mo ra si te no va li po con ter per \
                                 ing est ment ble";
        let syllables: Vec<&str> = SYLLABLES.split_whitespace().collect();
        let mut text = String::new();
        while text.len() < chars {
            let word = self.below(2048);
            text.push_str(syllables[word & 31]);
            text.push_str(syllables[word >> 5 & 31]);
            if word & 1024 != 0 {
                text.push_str(syllables[(word * 7) & 31]);
            }
            text.push(' ');
        }
        text.truncate(chars);
        text
    }
}
