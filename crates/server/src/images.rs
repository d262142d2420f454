//! Images as they come over HTTP: bytes in base64, or a data URL. What an image is, its bytes say; what it is called does not count. How many
//! there may be, and how large, core decides.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use segue_core::prompt::{ImageMediaType, PromptImage};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::problem::HttpProblem;

/// An image that is shown with a message.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewImage {
    /// The bytes of the file, in base64: PNG, JPEG, GIF or WebP.
    pub data: String,
    /// Its form, which need not be told: the bytes say it.
    #[serde(default)]
    #[schema(examples("image/png"))]
    pub media_type: Option<String>,
}

impl NewImage {
    /// All of them, to be shown.
    ///
    /// # Errors
    /// One of them is no image.
    pub fn parse_all(images: Vec<Self>) -> Result<Vec<PromptImage>, HttpProblem> {
        let numbered = images.into_iter().enumerate();
        numbered.map(|(place, image)| decode_base64_image(&image.data, &format!("image {}", place + 1))).collect()
    }
}

/// An image in a data URL.
///
/// # Errors
/// It is none, or somewhere else: nothing is fetched for a client.
pub fn parse_image_data_url(url: &str) -> Result<PromptImage, HttpProblem> {
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    match inline {
        Some((_, data)) => decode_base64_image(data, "the image"),
        None => Err(invalid_image(
            "images are taken as data URLs only (`data:image/png;base64,…`); nothing is fetched from elsewhere"
                .to_owned(),
        )),
    }
}

fn decode_base64_image(data: &str, label: &str) -> Result<PromptImage, HttpProblem> {
    let data = data.trim();
    let bytes = BASE64_STANDARD.decode(data).map_err(|_| invalid_image(format!("{label} is no base64")))?;
    let media = ImageMediaType::detect(&bytes).ok_or_else(|| {
        invalid_image(format!("{label} is none that models can look at; PNG, JPEG, GIF and WebP are taken"))
    })?;
    Ok(PromptImage { media_type: media, data: data.into() })
}

fn invalid_image(detail: String) -> HttpProblem {
    HttpProblem::new("no-image", detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIF: &str = "R0lGODlhAQABAAAAACwAAAAAAQABAAACAkQBADs=";

    #[test]
    fn the_bytes_say_what_an_image_is() {
        let called = format!("data:image/png;base64,{GIF}");
        assert_eq!(parse_image_data_url(&called).expect("an image").media_type, ImageMediaType::Gif);
        let named = NewImage { data: GIF.to_owned(), media_type: Some("image/jpeg".to_owned()) };
        let read = NewImage::parse_all(vec![named]).expect("an image");
        assert_eq!((read[0].media_type, &*read[0].data), (ImageMediaType::Gif, GIF));
    }

    #[test]
    fn what_is_no_image_is_refused_and_nothing_is_fetched() {
        let refused = |url: &str| parse_image_data_url(url).expect_err("refused");
        assert!(refused("https://example.org/cat.png").detail.contains("nothing is fetched"));
        assert!(refused("data:image/png;base64,###").detail.contains("no base64"));
        assert!(refused("data:image/png;base64,aGVsbG8=").detail.contains("PNG, JPEG, GIF and WebP"));
        let second = vec![
            NewImage { data: GIF.to_owned(), media_type: None },
            NewImage { data: "?".to_owned(), media_type: None },
        ];
        let problem = NewImage::parse_all(second).expect_err("refused");
        assert_eq!((problem.code, problem.detail.as_str()), ("no-image", "image 2 is no base64"));
    }
}
