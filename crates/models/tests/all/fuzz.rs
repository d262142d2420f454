//! A fuzz target: a vendor may send anything.

use std::path::Path;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, StreamExt, stream};
use segue_core::prompt::CallFailure;
use segue_models::http::{HttpTransport, VendorHttpRequest, VendorHttpResponse};
use segue_models::vendor::{
    GenerationParams, ModelCapabilities, ModelEndpoint, VendorCredentials, VendorModelClient, WireFormat,
};
use segue_testkit::run_fuzz_target;

use crate::support::ask;

/// Answers every request with the same bytes, in small chunks.
#[derive(Debug)]
struct FixedTransport(Vec<u8>);

impl HttpTransport for FixedTransport {
    fn send(&self, _: VendorHttpRequest) -> BoxFuture<'static, Result<VendorHttpResponse, CallFailure>> {
        let size = self.0.first().map_or(1, |byte| usize::from(byte % 13) + 1);
        let chunks: Vec<_> = self.0.chunks(size).map(|chunk| Ok(chunk.to_vec())).collect();
        let body = stream::iter(chunks).boxed();
        let headers = vec![("content-type".to_owned(), "text/event-stream".to_owned())];
        async move { Ok(VendorHttpResponse { status: 200, headers, body }) }.boxed()
    }
}

fn vendor(wire: WireFormat, bytes: &[u8]) -> VendorModelClient {
    let endpoint = ModelEndpoint {
        provider: "acme".to_owned(),
        wire,
        base_url: "http://localhost".to_owned(),
        model: "m-1".to_owned(),
        credentials: VendorCredentials::None,
        capabilities: ModelCapabilities::with_unknown_support(100_000),
        params: GenerationParams::default(),
    };
    VendorModelClient::new(endpoint, Arc::new(FixedTransport(bytes.to_vec())))
}

#[test]
fn fuzz_vendor_stream_readers() {
    let seeds = [
        "data: {\"choices\":[{\"delta\":{\"content\":\"so\",\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":\
         {\"name\":\"f\",\"arguments\":\"{\\\"x\\\":1}\"}}]},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":3}}\n\n\
         data: [DONE]\n\n",
        "event: x\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"so\"}\n\ndata: {\"type\":\"response.completed\",\
         \"response\":{\"output\":[],\"usage\":{\"input_tokens\":3}}}\n\n",
        "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":3}}}\n\ndata: {\"type\":\
         \"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"f\"}}\n\n\
         data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{}\"}}\n\n\
         data: {\"type\":\"message_stop\"}\n\n",
        "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"so\"},{\"functionCall\":{\"name\":\"f\",\"args\":{}}}]},\
         \"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":3}}\n\n",
        "{\"message\":{\"content\":\"<think>so\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":{}}}]},\"done\":false}\n\
         {\"message\":{},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":3}\n",
    ];
    let seeds: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.as_bytes().to_vec()).collect();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz/streams");
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime");
    run_fuzz_target("vendor streams", &corpus, &seeds, |bytes| {
        for wire in WireFormat::ALL {
            let chunks = runtime.block_on(ask("hi").chunks(&vendor(wire, bytes)));
            assert!(!chunks.is_empty(), "{wire:?}: a call has a result");
        }
    });
}
