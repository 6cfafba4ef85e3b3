//! The data: the UCI digits, built into the program, and their split into rows to learn from and rows to be
//! tested on.
//!
//! Source: "Optical Recognition of Handwritten Digits" (E. Alpaydin, C. Kaynak, 1998; CC BY 4.0).

use flate2::read::GzDecoder;
use std::error::Error;
use std::io::Read;

/// Pixels of an image, 8 × 8.
pub(crate) const PIXELS: usize = 64;
/// Digits.
pub(crate) const CLASSES: usize = 10;
/// The value of a pixel that is wholly ink.
const DARKEST: u8 = 16;
/// One row in so many is for testing.
const TEST_SHARE: usize = 5;

const FILE: &[u8] = include_bytes!("../../data/digits.csv.gz");

/// All images, pixels scaled to 0..1, with the digit each shows.
#[derive(Debug)]
pub(crate) struct Digits {
    pixels: Vec<f32>,
    labels: Vec<u32>,
}

impl Digits {
    /// The digits that are built in.
    pub(crate) fn load() -> Result<Self, Box<dyn Error>> {
        let mut text = String::new();
        GzDecoder::new(FILE).read_to_string(&mut text)?;
        Self::parse(&text)
    }

    /// Reads one image a line, comma-separated: its pixels, then its label.
    fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut digits = Self { pixels: Vec::new(), labels: Vec::new() };
        for line in text.lines() {
            let row: Vec<u8> = line.split(',').map(str::parse).collect::<Result<_, _>>()?;
            let (label, pixels) = row.split_last().ok_or("an image without a label")?;
            digits.pixels.extend(pixels.iter().map(|&pixel| f32::from(pixel) / f32::from(DARKEST)));
            digits.labels.push(u32::from(*label));
        }
        Ok(digits)
    }

    /// The rows to learn from, and the rows to be tested on: every fifth image of each digit, whatever the
    /// seed, so that runs can be compared. (Not every fifth row: the digits come in a rhythm.)
    pub(crate) fn split(&self) -> (Vec<usize>, Vec<usize>) {
        let mut seen = [0_usize; CLASSES];
        (0..self.labels.len()).partition(|&row| {
            let seen = &mut seen[self.labels[row] as usize];
            *seen += 1;
            !seen.is_multiple_of(TEST_SHARE)
        })
    }

    /// The pixels of `rows`, one image after the other.
    pub(crate) fn pixels(&self, rows: &[usize]) -> Vec<f32> {
        rows.iter().flat_map(|row| &self.pixels[row * PIXELS..][..PIXELS]).copied().collect()
    }

    /// Returns the labels of `rows`.
    pub(crate) fn labels(&self, rows: &[usize]) -> Vec<u32> {
        rows.iter().map(|&row| self.labels[row]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pixel: &str, label: &str) -> String {
        format!("{}{label}", format!("{pixel},").repeat(PIXELS))
    }

    #[test]
    fn the_built_in_file_has_1797_images() {
        let digits = Digits::load().expect("it is built in");
        assert_eq!((digits.labels.len(), digits.pixels.len()), (1797, 1797 * PIXELS));
        assert!(digits.pixels.iter().all(|pixel| (0.0..=1.0).contains(pixel)));
        assert!(
            digits.pixels.contains(&1.0) && digits.labels.iter().all(|&label| (label as usize) < CLASSES)
        );
    }

    #[test]
    fn the_split_is_80_to_20_for_each_digit_and_loses_no_row() {
        let digits = Digits::load().expect("it is built in");
        let (train, test) = digits.split();
        let mut all = [train.clone(), test.clone()].concat();
        all.sort_unstable();
        assert_eq!(all, (0..1797).collect::<Vec<_>>());
        for digit in 0..CLASSES as u32 {
            let count = |rows: &[usize]| digits.labels(rows).iter().filter(|&&label| label == digit).count();
            assert_eq!(count(&test), (count(&train) + count(&test)) / TEST_SHARE, "{digit}");
        }
    }

    #[test]
    fn rows_are_gathered_in_the_order_asked_for() {
        let digits =
            Digits::parse(&[line("0", "3"), line("16", "4"), line("8", "5")].join("\n")).expect("rows");
        assert_eq!(digits.labels(&[2, 0]), [5, 3]);
        assert_eq!(digits.pixels(&[2, 1]), [[0.5; PIXELS], [1.0; PIXELS]].concat());
    }
}
