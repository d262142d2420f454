//! Loads images for messages: reads the file, detects the media type and encodes the bytes.

use std::path::Path;

use anyhow::{Context, bail};
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{ImageMediaType, PromptImage};

/// Loads an image from a file.
pub(crate) fn load_image(file: &Path) -> anyhow::Result<PromptImage> {
    let read_error = || format!("cannot read the image {}", file.display());
    let bytes = std::fs::metadata(file).with_context(read_error)?.len();
    if bytes > SESSION_LIMITS.image_bytes_max as u64 {
        bail!("the image {} has {bytes} bytes; the limit is {}", file.display(), SESSION_LIMITS.image_bytes_max);
    }
    let bytes = std::fs::read(file).with_context(read_error)?;
    let Some(media_type) = ImageMediaType::detect(&bytes) else {
        bail!("{} is not a supported image; use PNG, JPEG, GIF or WebP", file.display());
    };
    Ok(PromptImage { media_type, data: encode_base64(&bytes).into() })
}

const BASE64_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for index in 0..4 {
            let letter = BASE64_ALPHABET[(bits >> (18 - 6 * index) & 63) as usize];
            out.push(if index <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_encoded_as_base64() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (plain, expected) in cases {
            assert_eq!(encode_base64(plain.as_bytes()), expected);
        }
        assert_eq!(encode_base64(&[0xFB, 0xFF, 0xFE]), "+//+");
    }
}
