//! A small RGB picture: text through `embedded-graphics`' fonts, smooth lines by coverage.

use std::convert::Infallible;

use embedded_graphics::mono_font::MonoTextStyle;
use embedded_graphics::mono_font::ascii::FONT_9X15;
use embedded_graphics::pixelcolor::{Rgb888, RgbColor};
use embedded_graphics::prelude::{DrawTarget, Drawable, OriginDimensions, Pixel, Point as At, Size};
use embedded_graphics::text::{Alignment, Baseline, Text, TextStyleBuilder};

use crate::RunlogError;

/// A colour.
pub type Colour = [u8; 3];

/// White at the start.
pub struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl OriginDimensions for Canvas {
    fn size(&self) -> Size {
        Size::new(self.width, self.height)
    }
}

impl DrawTarget for Canvas {
    type Color = Rgb888;
    type Error = Infallible;

    fn draw_iter<I: IntoIterator<Item = Pixel<Rgb888>>>(&mut self, pixels: I) -> Result<(), Infallible> {
        for Pixel(at, colour) in pixels {
            self.mix(at.x, at.y, [colour.r(), colour.g(), colour.b()], 1.0);
        }
        Ok(())
    }
}

impl Canvas {
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height, pixels: vec![255; (width * height * 3) as usize] }
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "inside the picture, 0 to 255"
    )]
    fn mix(&mut self, x: i32, y: i32, colour: Colour, share: f64) {
        if x < 0 || y < 0 || x as u32 >= self.width || y as u32 >= self.height {
            return;
        }
        let index = ((y as u32 * self.width + x as u32) * 3) as usize;
        for (pixel, value) in self.pixels[index..index + 3].iter_mut().zip(colour) {
            *pixel = (f64::from(*pixel) * (1.0 - share) + f64::from(value) * share).round() as u8;
        }
    }

    /// A line from point to point, `width` pixels thick, with smooth edges and round ends.
    #[expect(clippy::cast_possible_truncation, reason = "pixels")]
    pub fn line(&mut self, from: (f64, f64), to: (f64, f64), width: f64, colour: Colour) {
        let reach = width / 2.0 + 1.0;
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let length = (dx * dx + dy * dy).max(1e-12);
        for y in (from.1.min(to.1) - reach).floor() as i32..=(from.1.max(to.1) + reach).ceil() as i32 {
            for x in (from.0.min(to.0) - reach).floor() as i32..=(from.0.max(to.0) + reach).ceil() as i32 {
                let (px, py) = (f64::from(x) - from.0, f64::from(y) - from.1);
                let along = ((px * dx + py * dy) / length).clamp(0.0, 1.0);
                let distance = (px - along * dx).hypot(py - along * dy);
                let share = (width / 2.0 + 0.5 - distance).clamp(0.0, 1.0);
                if share > 0.0 {
                    self.mix(x, y, colour, share);
                }
            }
        }
    }

    /// ASCII text; `alignment` is that of `x`, `y` its middle.
    pub fn text(&mut self, text: &str, x: i32, y: i32, alignment: Alignment, colour: Colour) {
        let style = MonoTextStyle::new(&FONT_9X15, Rgb888::new(colour[0], colour[1], colour[2]));
        let layout = TextStyleBuilder::new().alignment(alignment).baseline(Baseline::Middle).build();
        let Ok(_) = Text::with_text_style(text, At::new(x, y), style, layout).draw(self);
    }

    /// The picture as PNG.
    pub fn png(&self) -> Result<Vec<u8>, RunlogError> {
        let mut out = Vec::new();
        let mut encoder = png::Encoder::new(&mut out, self.width, self.height);
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(out)
    }
}
