//! Tool call ids as vendors accept them. A conversation may contain calls of several models, with ids in each vendor's own
//! form, which other vendors may refuse. A valid id is sent unchanged; any other is replaced by a digest, which is the same in
//! the call, in its result and in every request.

use segue_core::body::BodyId;

use super::{ModelEndpoint, WireFormat};
use crate::limits::{
    ANTHROPIC_CALL_ID_BYTES_MAX, CHAT_CALL_ID_BYTES_MAX, MISTRAL_CALL_ID_BYTES, RESPONSES_CALL_ID_BYTES_MAX,
};

impl ModelEndpoint {
    /// Returns the id of a call as the vendor accepts it.
    pub(super) fn vendor_call_id(&self, id: &str) -> String {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let (fits, digest_bytes) = match self.wire {
            WireFormat::Chat if self.is_mistral() => {
                let fits = id.len() == MISTRAL_CALL_ID_BYTES && id.chars().all(|c| c.is_ascii_alphanumeric());
                (fits, MISTRAL_CALL_ID_BYTES)
            }
            // Some servers expect their own ids back, whatever they contain.
            WireFormat::Chat => (id.len() <= CHAT_CALL_ID_BYTES_MAX, CHAT_CALL_ID_BYTES_MAX),
            WireFormat::Responses => (id.len() <= RESPONSES_CALL_ID_BYTES_MAX, RESPONSES_CALL_ID_BYTES_MAX),
            WireFormat::Anthropic => {
                (id.len() <= ANTHROPIC_CALL_ID_BYTES_MAX && id.chars().all(is_word), ANTHROPIC_CALL_ID_BYTES_MAX)
            }
            // Ollama accepts any id; Gemini is only sent ids that it assigned itself.
            WireFormat::Ollama | WireFormat::Gemini => (true, 0),
        };
        if fits && !id.is_empty() {
            return id.to_owned();
        }
        BodyId::hash_text(id).to_string().chars().filter(char::is_ascii_alphanumeric).take(digest_bytes).collect()
    }

    fn is_mistral(&self) -> bool {
        let host = self.host_and_port().split(':').next().unwrap_or_default();
        self.provider == "mistral" || host == "api.mistral.ai"
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vendor::{GenerationParams, ModelCapabilities, VendorCredentials};

    fn test_endpoint(wire: WireFormat, provider: &str, base_url: &str) -> ModelEndpoint {
        ModelEndpoint {
            provider: provider.to_owned(),
            wire,
            base_url: base_url.to_owned(),
            model: "m-1".to_owned(),
            credentials: VendorCredentials::None,
            capabilities: ModelCapabilities::with_unknown_support(1_000),
            params: GenerationParams::default(),
        }
    }

    #[test]
    fn a_valid_id_is_sent_unchanged_and_any_other_as_a_digest() {
        let long = "chatcmpl-tool-".repeat(5);
        let ids = ["call_1", "toolu_01A09q90qw90lq917835lq9", "functions.look:0", "D681PevKs", &long, "größe"];
        for (wire, provider, base_url, fits, bytes_max) in [
            (WireFormat::Chat, "acme", "https://acme.example/v1", &[0, 1, 2, 3, 5][..], 40),
            (WireFormat::Chat, "mistral", "http://localhost/v1", &[3], 9),
            (WireFormat::Chat, "acme", "https://api.mistral.ai:443/v1", &[3], 9),
            (WireFormat::Responses, "openai", "https://acme.example/v1", &[0, 1, 2, 3, 5], 64),
            (WireFormat::Anthropic, "anthropic", "https://acme.example/v1", &[0, 1, 3], 64),
            (WireFormat::Ollama, "ollama", "http://localhost", &[0, 1, 2, 3, 4, 5], 100),
        ] {
            let endpoint = test_endpoint(wire, provider, base_url);
            let mut seen = std::collections::BTreeSet::new();
            for (index, id) in ids.iter().enumerate() {
                let sent = endpoint.vendor_call_id(id);
                assert_eq!(sent == *id, fits.contains(&index), "{wire:?} {provider}: {id} became {sent}");
                assert!(!sent.is_empty() && sent.len() <= bytes_max, "{sent}");
                assert_eq!(sent, endpoint.vendor_call_id(id), "the result has the same id");
                assert!(seen.insert(sent));
            }
        }
        let mistral = test_endpoint(WireFormat::Chat, "mistral", "");
        assert!(ids.iter().all(|id| mistral.vendor_call_id(id).len() == 9), "exactly nine characters");
    }
}
