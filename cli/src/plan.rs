//! How large a pool has to be for a model, its images and their rate.
//!
//! Widths are those of the rows that vision encoders put into the cache, in bfloat16: the language model's
//! hidden size, times 1 + DeepStack levels where the model has them (Qwen3-VL: three). A token covers 28x28
//! pixels in Qwen2-VL and Qwen2.5-VL, 32x32 in Qwen3-VL and Qwen3.5.

use std::fmt::Write as _;

use serde::Serialize;
use springtide::{
    connector::HEADER_BYTES,
    pool::{PoolConfig, UNIT_HEADER},
    size,
};

use crate::{args::PlanArgs, failure::Failure};

/// A model: name, elements of a row, pixels of a token's side. Models that differ in their name only stand side
/// by side.
pub const MODELS: [(&str, u64, u64); 15] = [
    ("Qwen2-VL-7B", 3584, 28),
    ("Qwen2.5-VL-3B", 2048, 28),
    ("Qwen2.5-VL-7B", 3584, 28),
    ("Qwen2.5-VL-32B", 5120, 28),
    ("Qwen2.5-VL-72B", 8192, 28),
    ("Qwen3-VL-2B", 8192, 32),
    ("Qwen3-VL-30B-A3B", 8192, 32),
    ("Qwen3-VL-4B", 10_240, 32),
    ("Qwen3-VL-8B", 16_384, 32),
    ("Qwen3-VL-235B-A22B", 16_384, 32),
    ("Qwen3-VL-32B", 20_480, 32),
    ("Qwen3.5-4B", 2560, 32),
    ("Qwen3.5-9B", 4096, 32),
    ("Qwen3.5-27B", 5120, 32),
    ("Qwen3.5-35B-A3B", 2048, 32),
];

/// Bytes of an element.
const ELEMENT_BYTES: u64 = 2;

/// Share of a pool that scattered items fill under churn; docs/performance.md has the figures.
const FILLED: f64 = 0.95;

/// Sizes of pools end on multiples of this.
const STEP: u64 = 64 << 20;

/// A pool and how it was computed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pool {
    /// Rows of one item.
    pub tokens: u64,
    /// Bytes of its payload.
    pub item_bytes: u64,
    /// Bytes that it takes in the pool, with its header, in whole units.
    pub held_bytes: u64,
    /// Bytes that arrive in a second.
    pub bytes_per_sec: f64,
    /// Items in the pool at a time.
    pub items: u64,
    /// `pool_bytes`.
    pub pool_bytes: u64,
    /// Items of this size that the pool holds.
    pub holds: u64,
}

/// What the arguments ask for, as text.
pub(crate) fn execute(arguments: &PlanArgs) -> Result<String, Failure> {
    if arguments.list {
        return Ok(list());
    }
    let (width, pixels) = match (&arguments.model, arguments.width.zip(arguments.pixels)) {
        (Some(model), _) => known(model)?,
        (None, Some(given)) => given,
        (None, None) => return Err(Failure::usage("expected --model, or --width with --pixels")),
    };
    let pool = compute(width, pixels, arguments)?;
    match arguments.json {
        true => serde_json::to_string_pretty(&pool).map_err(Failure::failed),
        false => Ok(words(&pool, arguments)),
    }
}

fn compute(width: u64, pixels: u64, arguments: &PlanArgs) -> Result<Pool, Failure> {
    let too_large = || Failure::usage("an item of more bytes than 64 bits count");
    let tokens = tokens(arguments.resolution, pixels)
        .checked_mul(arguments.frames.div_ceil(2).max(1))
        .ok_or_else(too_large)?;
    let row_bytes = width.checked_mul(ELEMENT_BYTES).ok_or_else(too_large)?;
    let item_bytes = tokens.checked_mul(row_bytes).ok_or_else(too_large)?;
    let unit = PoolConfig::with_bytes(STEP).unit();
    let held_bytes = item_bytes
        .checked_add(HEADER_BYTES)
        .and_then(|bytes| bytes.checked_next_multiple_of(unit))
        .ok_or_else(too_large)?;
    let rate = arguments.rate * arguments.items as f64;
    // A burst of two requests, and what arrives while an item stays.
    let staying = (rate * arguments.seconds).ceil() as u64;
    let items = staying + 2 * arguments.items;
    let needed = held_bytes.checked_mul(items).ok_or_else(too_large)? as f64 / FILLED;
    let pool_bytes = (needed as u64).div_ceil(STEP).checked_mul(STEP).ok_or_else(too_large)?;
    Ok(Pool {
        tokens,
        item_bytes,
        held_bytes,
        bytes_per_sec: item_bytes as f64 * rate,
        items,
        pool_bytes,
        holds: (pool_bytes as f64 * FILLED / held_bytes as f64) as u64,
    })
}

/// Rows of an image of so many pixels, a token being `pixels` wide and high. The processor rounds each side to
/// whole tokens, halves to the even number as Python does.
pub fn tokens((wide, high): (u64, u64), pixels: u64) -> u64 {
    let side = |side: u64| ((side as f64 / pixels as f64).round_ties_even() as u64).max(1);
    side(wide) * side(high)
}

/// Bytes of a model's item with its header, for a pool that must hold it.
pub(crate) fn object_bytes(
    model: &str,
    resolution: (u64, u64),
    frames: u64,
) -> Result<u64, Failure> {
    let (width, pixels) = known(model)?;
    let rows = tokens(resolution, pixels) * frames.div_ceil(2).max(1);
    Ok(rows * width * ELEMENT_BYTES + HEADER_BYTES)
}

fn words(pool: &Pool, arguments: &PlanArgs) -> String {
    let mib = |bytes: f64| format!("{:.1} MiB", bytes / (1 << 20) as f64);
    let (wide, high) = arguments.resolution;
    let PlanArgs { rate, items, seconds, .. } = arguments;
    let item = mib(pool.item_bytes as f64);
    let mut text = format!("an item     {wide}x{high}: {} tokens, {item}\n", pool.tokens);
    let arriving = mib(pool.bytes_per_sec);
    // Writing to a string does not fail.
    let _ = writeln!(text, "arriving    {rate} requests a second of {items}: {arriving} a second");
    let _ =
        writeln!(text, "in the pool {} items: a burst of 2 requests, and {seconds} s", pool.items);
    let _ = write!(
        text,
        "\npool_bytes = \"{}\"    # per instance; holds {} such items",
        size::show(pool.pool_bytes),
        pool.holds
    );
    text
}

fn list() -> String {
    let mut text = "model                 row      token".to_owned();
    for (name, width, pixels) in MODELS {
        let _ = write!(text, "\n{name:<20} {:>6} B  {pixels}x{pixels}", width * ELEMENT_BYTES);
    }
    text
}

/// A model by its name, however it is written.
fn known(model: &str) -> Result<(u64, u64), Failure> {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    let name = name.trim_end_matches("-instruct").trim_end_matches("-thinking");
    let found = MODELS.iter().find(|(known, ..)| known.to_lowercase() == name);
    found.map(|(_, width, pixels)| (*width, *pixels)).ok_or_else(|| {
        let names = MODELS.map(|(name, ..)| name).join(", ");
        Failure::usage(format!(
            "--model is {model}, expected one of {names}; for another, give --width and --pixels"
        ))
    })
}

const _: () = assert!(UNIT_HEADER == HEADER_BYTES, "the header of an item lies in a unit's own");

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::args::{Cli, Command};

    fn plan(arguments: &[&str]) -> PlanArgs {
        let all = [&["springtide", "plan"], arguments].concat();
        match Cli::try_parse_from(all).unwrap().command {
            Command::Plan(arguments) => arguments,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn items_are_as_large_as_they_were_measured() {
        // Model, resolution, tokens, MiB.
        for (model, resolution, tokens, mib) in [
            ("Qwen2.5-VL-7B", "1920x1080", 2691, 18.4),
            ("Qwen2.5-VL-7B", "640x640", 529, 3.6),
            ("Qwen/Qwen2.5-VL-72B-Instruct", "1280x720", 1196, 18.7),
            ("Qwen3-VL-8B", "1920x1080", 2040, 63.8),
            ("Qwen3-VL-8B", "1024x1024", 1024, 32.0),
            ("Qwen3-VL-32B", "3840x2160", 8160, 318.8),
            ("Qwen3.5-4B", "1280x720", 880, 4.3),
        ] {
            let arguments = plan(&["--model", model, "--resolution", resolution]);
            let (width, pixels) = known(model).unwrap();
            let pool = compute(width, pixels, &arguments).unwrap();
            assert_eq!(pool.tokens, tokens, "{model} {resolution}");
            let got = pool.item_bytes as f64 / (1 << 20) as f64;
            assert!((got - mib).abs() < 0.06, "{model} {resolution}: {got}");
        }
    }

    #[test]
    fn a_pool_holds_what_was_asked_for() {
        let base = ["--model", "Qwen3-VL-8B", "--resolution", "1024x1024"];
        let with = |more: &[&str]| compute(16_384, 32, &plan(&[&base[..], more].concat())).unwrap();
        let pool = with(&["--rate", "20", "--items", "2", "--seconds", "1.5"]);
        assert_eq!(pool.items, 64);
        assert!(pool.holds >= pool.items && pool.pool_bytes.is_multiple_of(STEP), "{pool:?}");
        assert!(pool.pool_bytes < 64 * (32 << 20) * 11 / 10, "{pool:?}");
        // An idle instance holds a burst.
        assert_eq!(with(&["--rate", "0"]).items, 2);
        // 32 frames are 16 images.
        assert_eq!(with(&["--frames", "32"]).tokens, 16 * with(&[]).tokens);
    }

    #[test]
    fn what_64_bits_do_not_count_is_refused() {
        for (width, resolution) in
            [(u64::MAX, "1920x1080"), (u64::MAX / 2, "1x1"), (1 << 60, "8x1")]
        {
            let width = width.to_string();
            let refused =
                execute(&plan(&["--width", &width, "--pixels", "1", "--resolution", resolution]));
            let failure = refused.unwrap_err();
            assert_eq!(failure.exit_code(), 2);
            assert_eq!(failure.to_string(), "an item of more bytes than 64 bits count");
        }
    }

    #[test]
    fn words_and_mistakes() {
        let text = |arguments: &[&str]| match execute(&plan(arguments)) {
            Ok(text) => text,
            Err(failure) => format!("{} {failure}", failure.exit_code()),
        };
        insta::assert_snapshot!(
            [
                text(&["--model", "Qwen3-VL-8B", "--rate", "20"]),
                text(&["--width", "4096", "--pixels", "14", "--resolution", "336x336"]),
                text(&["--model", "Qwen2.5-VL-7B", "--json"]),
                text(&["--model", "GPT-5"]),
                text(&[
                    "--width",
                    "18446744073709551",
                    "--pixels",
                    "1",
                    "--resolution",
                    "65536x65536"
                ]),
                text(&["--list"]),
            ]
            .join("\n\n")
        );
    }

    /// Models of one width are one row. Shown when it differs, to be pasted.
    #[test]
    fn the_table_of_the_tuning_page_is_computed() {
        let page = include_str!("../../docs/tuning.md");
        let resolutions = ["640x640", "1024x1024", "1920x1080", "3840x2160"];
        let mut rows: Vec<((u64, u64), Vec<&str>)> = Vec::new();
        for (name, width, pixels) in MODELS {
            match rows.iter_mut().find(|(kind, _)| *kind == (width, pixels)) {
                Some((_, names)) => names.push(name),
                None => rows.push(((width, pixels), vec![name])),
            }
        }
        let lines = rows.iter().map(|((width, pixels), names)| {
            let cells = resolutions.map(|resolution| {
                let arguments = ["--model", names[0], "--resolution", resolution, "--rate", "20"];
                let pool = compute(*width, *pixels, &plan(&arguments)).unwrap();
                let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
                format!("{:.1} / {}", mib(pool.item_bytes), mib(pool.pool_bytes))
            });
            format!("| {} | {} |\n", names.join(", "), cells.join(" | "))
        });
        let table: String = lines.collect();
        assert!(page.contains(&table), "docs/tuning.md has another table:\n{table}");
    }
}
