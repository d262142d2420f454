//! Images on their way to a model: read from a file, told apart by their bytes, and encoded.

use std::path::Path;

use anyhow::{Context, bail};
use segue_core::limits::IMAGE_BYTES_MAX;
use segue_core::prompt::{ImageMediaType, PromptImage};

/// Reads an image from a file.
pub fn load_image(file: &Path) -> anyhow::Result<PromptImage> {
    let named = || format!("cannot read the image {}", file.display());
    let bytes = std::fs::metadata(file).with_context(named)?.len();
    if bytes > IMAGE_BYTES_MAX as u64 {
        bail!(
            "the image {} has {bytes} bytes; at most {IMAGE_BYTES_MAX} are taken, so make it smaller",
            file.display()
        );
    }
    let bytes = std::fs::read(file).with_context(named)?;
    let Some(media) = ImageMediaType::detect(&bytes) else {
        bail!("{} is no image that models can look at; PNG, JPEG, GIF and WebP are taken", file.display());
    };
    Ok(PromptImage { media_type: media, data: encode_base64(&bytes).into() })
}

const BASE64_ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as base64.
fn encode_base64(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |place: usize| u32::from(three.get(place).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for place in 0..4 {
            let letter = BASE64_ALPHABET[(bits >> (18 - 6 * place) & 63) as usize];
            out.push(if place <= three.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_base64() {
        let cases =
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg=="), ("fooba", "Zm9vYmE=")];
        for (plain, expected) in cases {
            assert_eq!(encode_base64(plain.as_bytes()), expected);
        }
        assert_eq!(encode_base64(&[0xFB, 0xFF, 0xFE]), "+//+");
    }
}
