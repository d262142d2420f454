//! Reads images from base64 or data URLs. The format is detected from the bytes. The core limits the number and size of
//! images.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use segue_core::prompt::{ImageMediaType, PromptImage};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::problem::HttpProblem;

/// An image to attach to a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewMessageImage {
    /// The file in base64: PNG, JPEG, GIF or WebP.
    pub data: String,
    /// Optional; the format is detected from the bytes.
    #[serde(default)]
    #[schema(examples("image/png"))]
    #[expect(dead_code, reason = "accepted for clients that send it")]
    pub media_type: Option<String>,
}

impl NewMessageImage {
    /// Decodes the images of a message.
    ///
    /// # Errors
    /// One of them is not an image.
    pub(crate) fn parse_all(images: Vec<Self>) -> Result<Vec<PromptImage>, HttpProblem> {
        let numbered = images.into_iter().enumerate();
        numbered.map(|(index, image)| decode_base64_image(&image.data, &format!("image {}", index + 1))).collect()
    }
}

/// Decodes an image in a data URL.
///
/// # Errors
/// The URL is not a data URL, or its contents are not an image. Other URLs are never fetched.
pub(crate) fn parse_image_data_url(url: &str) -> Result<PromptImage, HttpProblem> {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match inline {
        Some((_, data)) => decode_base64_image(data, "the image"),
        None => Err(invalid_image(
            "images must be data URLs (`data:image/png;base64,…`); other URLs are not fetched".to_owned(),
        )),
    }
}

fn decode_base64_image(data: &str, label: &str) -> Result<PromptImage, HttpProblem> {
    let data = data.trim();
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| invalid_image(format!("{label} is not base64")))?;
    let media_type = ImageMediaType::detect(&bytes)
        .ok_or_else(|| invalid_image(format!("{label} has an unknown format; use PNG, JPEG, GIF or WebP")))?;
    Ok(PromptImage { media_type, data: data.into() })
}

fn invalid_image(detail: String) -> HttpProblem {
    HttpProblem::new("invalid-image", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIF: &str = "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";

    #[test]
    fn image_format_is_detected_from_the_bytes() {
        let called = format!("data:image/png;base64,{GIF}");
        assert_eq!(parse_image_data_url(&called).expect("an image").media_type, ImageMediaType::Gif);
        let named = NewMessageImage { data: GIF.to_owned(), media_type: Some("image/jpeg".to_owned()) };
        let read = NewMessageImage::parse_all(vec![named]).expect("an image");
        assert_eq!((read[0].media_type, &*read[0].data), (ImageMediaType::Gif, GIF));
    }

    #[test]
    fn invalid_images_are_refused_and_nothing_is_fetched() {
        let refused = |url: &str| parse_image_data_url(url).expect_err("refused");
        assert!(refused("https://example.org/cat.png").detail.contains("not fetched"));
        assert!(refused("data:image/png;base64,###").detail.contains("not base64"));
        assert!(refused("data:image/png;base64,aGVsbG8=").detail.contains("PNG, JPEG, GIF or WebP"));
        let second = vec![
            NewMessageImage { data: GIF.to_owned(), media_type: None },
            NewMessageImage { data: "?".to_owned(), media_type: None },
        ];
        let problem = NewMessageImage::parse_all(second).expect_err("refused");
        assert_eq!((problem.code, problem.detail.as_str()), ("invalid-image", "image 2 is not base64"));
    }
}
